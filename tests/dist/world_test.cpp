#include "dist/world.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "dist/engine.h"

namespace transnormer::dist {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

const at::Device kGpu(at::kCUDA, 0);

DistributedConfig with(DistributedBackend backend, std::int64_t sequence_parallel = 1) {
  DistributedConfig config;
  config.backend = backend;
  config.sequence_parallel = sequence_parallel;
  return config;
}

std::string fault_of_groups(World& world, const DistributedConfig& config, at::Device device) {
  try {
    world.form_groups(config, device);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(World, OfOneSharesNoSequence) {
  World world;
  EXPECT_THAT(fault_of_groups(world, with(DistributedBackend::automatic, 2), at::kCPU),
              HasSubstr("2 ranks cannot share a sequence where there is one"));
}

// Stands for NCCL: does nothing but say what it has found.
class FakeBackend : public c10d::Backend {
 public:
  FakeBackend(int rank, int size, c10d::ErrorType found) : Backend(rank, size), found_(found) {}
  const std::string getBackendName() const override { return "fake"; }
  c10d::ErrorType getError() override { return found_; }

 private:
  c10d::ErrorType found_;
};

int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&name), size), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&name), &size), 0);
  ::close(socket);
  return ntohs(name.sin_port);
}

// Two threads in the place of processes, each with its world.
void with_world_of_two(const std::function<void(World&)>& body) {
  const int port = free_port();
  const auto run = [&](int rank) {
    World world({.rank = rank, .size = 2, .local_rank = rank, .local_size = 2, .port = port}, 20s,
                "test");
    body(world);
    world.all().meet();
  };
  std::thread other(run, 1);
  run(0);
  other.join();
}

TEST(World, OfOneHasNoUseForABackend) {
  World world;
  EXPECT_EQ(fault_of_groups(world, with(DistributedBackend::nccl), at::kCPU), "");
  EXPECT_EQ(fault_of_groups(world, with(DistributedBackend::gloo), kGpu), "");
}

TEST(World, TakesTheBackendOfItsDeviceOnly) {
  with_world_of_two([](World& world) {
    EXPECT_THAT(fault_of_groups(world, with(DistributedBackend::nccl), at::kCPU),
                HasSubstr("\"nccl\" is for GPUs"));
    EXPECT_THAT(fault_of_groups(world, with(DistributedBackend::gloo), kGpu),
                HasSubstr("\"gloo\" is for CPUs"));
    EXPECT_EQ(fault_of_groups(world, with(DistributedBackend::gloo), at::kCPU), "");
  });
}

TEST(World, AsksForAnEngineForEveryGroupOfAGpu) {
  std::mutex mutex;
  std::multiset<std::pair<int, int>> asked;  // size, rank
  const EngineMaker make = [&](const EngineRequest& request) {
    const std::lock_guard lock(mutex);
    asked.emplace(request.size, request.rank);
    return std::make_shared<Engine>(
        Engine{.backend = c10::make_intrusive<FakeBackend>(request.rank, request.size,
                                                           c10d::ErrorType::SUCCESS)});
  };
  with_world_of_two([&](World& world) {
    world.form_groups(with(DistributedBackend::automatic, 2), kGpu, make);
    EXPECT_EQ(world.all().size(), 2);
    EXPECT_EQ(world.sequence().size(), 2);
    EXPECT_EQ(world.samples().size(), 1);
    std::vector<double> one{1};
    world.sequence().sum(one);  // what lies on the CPU goes by Gloo all the same
    EXPECT_EQ(one[0], 2);
  });
  EXPECT_EQ(asked, (std::multiset<std::pair<int, int>>{{2, 0}, {2, 0}, {2, 1}, {2, 1}}));
}

TEST(WorldDeathTest, EndsByOneLineWhereACollectiveOfGpusTakesTooLong) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const EngineMaker make = [](const EngineRequest& request) {
    const auto found = request.rank == 1 ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::SUCCESS;
    return std::make_shared<Engine>(
        Engine{.backend = c10::make_intrusive<FakeBackend>(request.rank, request.size, found)});
  };
  EXPECT_EXIT(with_world_of_two([&](World& world) {
                world.form_groups(with(DistributedBackend::automatic), kGpu, make);
                std::this_thread::sleep_for(15s);
              }),
              testing::ExitedWithCode(1), "a collective of the GPUs timed out");
}

}  // namespace
}  // namespace transnormer::dist
