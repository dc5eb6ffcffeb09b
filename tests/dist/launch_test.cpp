#include "dist/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "util/error.h"

namespace transnormer::dist {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_of(const Variables& variables) {
  return resolve_launch([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string fault_of(const Variables& variables) {
  try {
    (void)launch_of(variables);
  } catch (const UserError& error) {
    EXPECT_EQ(error.faults().size(), 1U);
    return error.what();
  }
  return "none";
}

Variables with(Variables variables, const std::string& name, const std::string& value) {
  variables[name] = value;
  return variables;
}

Variables without(Variables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

const Variables kTorchrun{{"RANK", "3"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"},
                          {"TORCHELASTIC_RESTART_COUNT", "1"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kOpenmpi{{"OMPI_COMM_WORLD_RANK", "2"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "job.1"}};
const Variables kSlurm{{"SLURM_JOB_ID", "71"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "5"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_STEP_NUM_TASKS", "7"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x3),1"},
                       {"SLURM_STEP_NODELIST", "gpu[07-09,12]"}};

TEST(Launch, WithoutALauncherIsOneProcess) {
  EXPECT_EQ(launch_of({}).size, 1);
  EXPECT_EQ(launch_of({{"WORLD_SIZE", "1"}}).size, 1);
  EXPECT_EQ(launch_of({{"MASTER_ADDR", "here"}, {"MASTER_PORT", "1"}}).size, 1);
  EXPECT_EQ(describe(launch_of({})), "one process");
}

TEST(Launch, ReadsTorchrun) {
  const Launch launch = launch_of(kTorchrun);
  EXPECT_EQ(launch.launcher, "torchrun");
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_size, 2);
  EXPECT_EQ(launch.host, "node1");
  EXPECT_EQ(launch.port, 29500);
  EXPECT_TRUE(launch.store_is_there);
  EXPECT_EQ(launch.attempt, "1");
  EXPECT_EQ(describe(launch), "4 processes by torchrun, 2 on this machine, meeting at node1:29500");
}

TEST(Launch, TakesAllOfAGroupToBeHereWhereTheEnvironmentDoesNotTell) {
  const Launch launch = launch_of(
      {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "4000"}});
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_size, 2);
  EXPECT_FALSE(launch.store_is_there);
}

TEST(Launch, ReadsOpenmpi) {
  const Launch launch = launch_of(kOpenmpi);
  EXPECT_EQ(launch.launcher, "mpirun");
  EXPECT_EQ(launch.rank, 2);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_rank, 2);
  EXPECT_EQ(launch.host, "127.0.0.1");
  // The same for all of the job, another for another job.
  EXPECT_EQ(launch.port, launch_of(with(kOpenmpi, "OMPI_COMM_WORLD_RANK", "1")).port);
  EXPECT_NE(launch.port, launch_of(with(kOpenmpi, "PMIX_NAMESPACE", "job.2")).port);
  EXPECT_EQ(launch_of(with(kOpenmpi, "MASTER_PORT", "1234")).port, 1234);
}

TEST(Launch, WantsAnAddressWhereOpenmpiHasSeveralMachines) {
  const Variables spread =
      with(with(kOpenmpi, "OMPI_COMM_WORLD_LOCAL_SIZE", "2"), "OMPI_COMM_WORLD_LOCAL_RANK", "0");
  EXPECT_THAT(fault_of(spread), testing::HasSubstr("MASTER_ADDR"));
  EXPECT_EQ(launch_of(with(spread, "MASTER_ADDR", "node1")).host, "node1");
}

TEST(Launch, ReadsAStepOfSlurm) {
  const Launch launch = launch_of(kSlurm);
  EXPECT_EQ(launch.launcher, "srun");
  EXPECT_EQ(launch.rank, 5);
  EXPECT_EQ(launch.size, 7);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_size, 2);
  EXPECT_EQ(launch.host, "gpu07");
}

TEST(Launch, LeavesSlurmAloneOutsideOfSteps) {
  EXPECT_EQ(launch_of(without(kSlurm, "SLURM_STEP_ID")).size, 1);
  EXPECT_EQ(launch_of(with(kSlurm, "SLURM_STEP_ID", "4294967291")).size, 1);
}

TEST(Launch, ReadsPmi) {
  const Launch launch = launch_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}});
  EXPECT_EQ(launch.rank, 1);
  EXPECT_EQ(launch.size, 2);
  EXPECT_EQ(launch.local_size, 2);
}

TEST(Launch, TakesTorchrunInsideOfSlurmAndMpi) {
  Variables all = kTorchrun;
  all.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(launch_of(all).launcher, "torchrun");
  Variables mpi_in_slurm = kOpenmpi;
  mpi_in_slurm.insert(kSlurm.begin(), kSlurm.end());
  EXPECT_EQ(launch_of(mpi_in_slurm).launcher, "mpirun");
}

TEST(Launch, NamesWhatIsMissing) {
  EXPECT_THAT(fault_of({{"RANK", "0"}}), testing::HasSubstr("WORLD_SIZE is not"));
  EXPECT_THAT(fault_of({{"WORLD_SIZE", "2"}}), testing::HasSubstr("RANK is not"));
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(fault_of(without(kTorchrun, name)),
                testing::HasSubstr(std::string(name) + " is not"));
  }
  EXPECT_THAT(fault_of(without(kOpenmpi, "OMPI_COMM_WORLD_SIZE")),
              testing::HasSubstr("OMPI_COMM_WORLD_SIZE is not"));
  EXPECT_THAT(fault_of(without(kSlurm, "SLURM_STEP_NUM_TASKS")),
              testing::HasSubstr("SLURM_STEP_NUM_TASKS is not"));
}

TEST(Launch, NamesWhatContradicts) {
  EXPECT_THAT(
      fault_of(with(kTorchrun, "RANK", "4")),
      testing::AllOf(testing::HasSubstr("RANK is 4"), testing::HasSubstr("WORLD_SIZE is 4")));
  EXPECT_THAT(fault_of(with(kTorchrun, "LOCAL_RANK", "2")), testing::HasSubstr("LOCAL_RANK is 2"));
  EXPECT_THAT(fault_of(with(kTorchrun, "LOCAL_WORLD_SIZE", "5")),
              testing::HasSubstr("LOCAL_WORLD_SIZE is 5"));
  EXPECT_THAT(fault_of(with(kTorchrun, "WORLD_SIZE", "0")), testing::HasSubstr("WORLD_SIZE is 0"));
  for (const char* wrong : {"two", "-1", "1.5", "99999999999"}) {
    EXPECT_THAT(fault_of(with(kTorchrun, "WORLD_SIZE", wrong)),
                testing::HasSubstr("expected a number"));
  }
  EXPECT_THAT(fault_of(with(kTorchrun, "MASTER_PORT", "70000")),
              testing::HasSubstr("expected 1 to 65535"));
  Variables own =
      without(without(kTorchrun, "TORCHELASTIC_RUN_ID"), "TORCHELASTIC_USE_AGENT_STORE");
  own.insert(kOpenmpi.begin(), kOpenmpi.end());
  EXPECT_THAT(fault_of(own), testing::HasSubstr("OMPI_COMM_WORLD_RANK"));
}

TEST(Launch, FindsTheFirstMachineOfSlurmsLists) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("node[3,5]"), "node3");
  EXPECT_EQ(first_host("a[01-03]b[7-9],c"), "a01b7");
}

}  // namespace
}  // namespace transnormer::dist
