#include "checkpoint/safetensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/fixture.h"
#include "util/error.h"
#include "util/file.h"
#include "util/hash.h"
#include "util/python.h"
#include "util/temporary_directory.h"

namespace transnormer {
namespace {

using nlohmann::json;
using test::first_difference;
using test::user_error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Without the flush of write_file(), which takes long when there are thousands.
void put(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// A file of this header and so many bytes of tensors.
std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>(header.size() >> shift & 0xFF);
  }
  return bytes + header + std::string(data_bytes, '\0');
}

class Safetensors : public ::testing::Test {
 protected:
  [[nodiscard]] std::string listing_fault(const std::string& bytes) const {
    put(path_, bytes);
    return user_error_of([this] { (void)list_safetensors(InputFile(path_)); });
  }

  [[nodiscard]] std::string reading_fault(const std::vector<NamedTensor>& tensors) const {
    return user_error_of([&] { read_safetensors(InputFile(path_), tensors); });
  }

  [[nodiscard]] json python_reads() const {
    const test::PythonResult result = test::run_python(kScript + " read '" + path_.string() + "'");
    EXPECT_EQ(result.status, 0);
    return json::parse(result.output);
  }

  static inline const std::string kScript =
      "'" TRANSNORMER_SOURCE_DIR "/tests/checkpoint/python_safetensors.py'";
  test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_ / "file.safetensors";
  std::vector<NamedTensor> tensors_{
      {"odd", at::tensor({1.5F, -0.0F, std::numeric_limits<float>::denorm_min(),
                          std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity()})},
      {"turned", at::arange(6, at::kFloat).view({2, 3}).t()},
      {"counts", at::tensor({std::int64_t{1} << 40, std::int64_t{-1}}, at::kLong)},
      {"single", at::scalar_tensor(2.5F)},
      {"empty", at::empty({0, 3})}};
};

std::vector<NamedTensor> blank_like(const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> blank;
  for (const NamedTensor& named : tensors) {
    blank.push_back({named.name, at::zeros_like(named.tensor), named.trainable});
  }
  return blank;
}

TEST_F(Safetensors, ComeBackBitForBit) {
  write_safetensors(path_, tensors_);
  const std::vector<NamedTensor> read = blank_like(tensors_);
  read_safetensors(InputFile(path_), read);
  EXPECT_EQ(first_difference(tensors_, read), "");
}

TEST_F(Safetensors, AreReadIntoParametersThatWantGradients) {
  write_safetensors(path_, {{"w", at::ones({2})}});
  const at::Tensor parameter = at::zeros({2}).requires_grad_();
  read_safetensors(InputFile(path_), {{"w", parameter}});
  EXPECT_TRUE(at::equal(parameter, at::ones({2})));
  EXPECT_TRUE(parameter.is_leaf());
}

TEST_F(Safetensors, GiveTheSameBytesAndTheirDigest) {
  const std::string digest = write_safetensors(path_, tensors_);
  EXPECT_EQ(digest, sha256(InputFile(path_)));
  EXPECT_EQ(write_safetensors(directory_ / "again", tensors_), digest);
}

TEST_F(Safetensors, KeepTheOrderGivenAndListIt) {
  write_safetensors(path_, tensors_);
  const std::vector<TensorInfo> listed = list_safetensors(InputFile(path_));
  ASSERT_EQ(listed.size(), tensors_.size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    EXPECT_EQ(listed[i].name, tensors_[i].name);
    EXPECT_EQ(listed[i].shape, tensors_[i].tensor.sizes().vec());
    EXPECT_EQ(listed[i].dtype, tensors_[i].name == "counts" ? "I64" : "F32");
  }
}

TEST_F(Safetensors, BeginAtAMultipleOfEightBytes) {
  for (const char* name : {"a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"}) {
    write_safetensors(path_, {{name, at::ones({1})}});
    EXPECT_EQ((std::filesystem::file_size(path_) - 4) % 8, 0U) << name;
  }
}

TEST_F(Safetensors, StoreHalfPrecisionInSingle) {
  write_safetensors(path_, {{"h", at::tensor({0.5F, 3.0F}).to(at::kBFloat16)}});
  EXPECT_EQ(list_safetensors(InputFile(path_))[0].dtype, "F32");
  const at::Tensor read = at::zeros({2}, at::kBFloat16);
  read_safetensors(InputFile(path_), {{"h", read}});
  EXPECT_TRUE(at::equal(read, at::tensor({0.5F, 3.0F}).to(at::kBFloat16)));
}

TEST_F(Safetensors, AreReadByPythonsLibrary) {
  if (!test::python_has("safetensors")) {
    GTEST_SKIP() << TRANSNORMER_PYTHON " has no safetensors to check against";
  }
  tensors_.erase(tensors_.begin());  // JSON knows no NaN
  write_safetensors(path_, tensors_);
  EXPECT_EQ(python_reads(), json::parse(R"({
      "turned": ["float32", [3, 2], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]],
      "counts": ["int64", [2], [1099511627776, -1]],
      "single": ["float32", [], [2.5]],
      "empty": ["float32", [0, 3], []]})"));
}

TEST_F(Safetensors, OfPythonsLibraryAreRead) {
  if (!test::python_has("safetensors")) {
    GTEST_SKIP() << TRANSNORMER_PYTHON " has no safetensors to check against";
  }
  ASSERT_EQ(test::run_python(kScript + " write '" + path_.string() + "'").status, 0);
  const at::Tensor weight = at::zeros({2, 3});
  const at::Tensor steps = at::zeros({2}, at::kLong);
  read_safetensors(InputFile(path_), {{"weight", weight}, {"steps", steps}});
  EXPECT_TRUE(at::equal(weight, at::arange(6, at::kFloat).view({2, 3}) / 4));
  EXPECT_TRUE(at::equal(steps, at::tensor({std::int64_t{1} << 40, std::int64_t{-1}}, at::kLong)));
}

TEST_F(Safetensors, NameWhatDoesNotMatch) {
  write_safetensors(path_, {{"a", at::zeros({2, 3})}, {"b", at::zeros({1})}});
  const NamedTensor a{"a", at::zeros({2, 3})};
  const NamedTensor b{"b", at::zeros({1})};
  EXPECT_THAT(reading_fault({a, b, {"c", at::zeros({1})}}), HasSubstr("tensor c is missing"));
  EXPECT_THAT(reading_fault({a}), HasSubstr("tensor b has no place here"));
  EXPECT_THAT(reading_fault({{"x", b.tensor}, b, {"y", b.tensor}}),
              HasSubstr("tensors x, y are missing; tensor a has no place here"));
  EXPECT_THAT(reading_fault({{"a", at::zeros({3, 2})}, b}),
              AllOf(HasSubstr("tensor a has the shape [2, 3], expected [3, 2]"),
                    HasSubstr(path_.string())));
  EXPECT_THAT(reading_fault({a, {"b", at::zeros({1}, at::kLong)}}),
              HasSubstr("tensor b holds numbers of type F32, expected I64"));
}

TEST_F(Safetensors, AreReadByNameInAnyOrder) {
  write_safetensors(path_, {{"a", at::ones({2})}, {"b", at::full({2}, 2.0)}});
  const at::Tensor a = at::zeros({2});
  const at::Tensor b = at::zeros({2});
  const auto version = a._version();
  read_safetensors(InputFile(path_), {{"b", b}, {"a", a}});
  EXPECT_TRUE(at::equal(a, at::ones({2})));
  EXPECT_TRUE(at::equal(b, at::full({2}, 2.0)));
  EXPECT_GT(a._version(), version);  // copies of it know that they are old
}

TEST_F(Safetensors, AreNotTouchedWhereOneDoesNotMatch) {
  write_safetensors(path_, {{"a", at::ones({2})}, {"b", at::ones({1})}});
  const at::Tensor a = at::zeros({2});
  EXPECT_THROW(read_safetensors(InputFile(path_), {{"a", a}, {"b", at::zeros({7})}}), UserError);
  EXPECT_TRUE(at::equal(a, at::zeros({2})));
}

TEST_F(Safetensors, CutAnywhereAreRefused) {
  write_safetensors(path_, tensors_);
  const std::string whole = read_file(path_);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(listing_fault(whole.substr(0, size)), HasSubstr("not a whole safetensors file"))
        << size;
  }
  EXPECT_THAT(listing_fault(whole + "x"), HasSubstr("not a whole safetensors file"));
}

TEST_F(Safetensors, WithAnyFlippedBitInTheHeaderAreReadOrRefused) {
  write_safetensors(path_, {{"a", at::ones({2, 3})}, {"b", at::ones({1})}});
  const std::string whole = read_file(path_);
  const std::size_t header_end = whole.size() - 7 * 4;
  for (std::size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    put(path_, flipped);
    try {
      read_safetensors(InputFile(path_), {{"a", at::zeros({2, 3})}, {"b", at::zeros({1})}});
    } catch (const UserError& error) {
      EXPECT_EQ(error.faults().size(), 1U);
    }
  }
}

TEST_F(Safetensors, WithImpossibleHeadersAreRefused) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return R"({"a": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" +
           offsets + "}}";
  };
  EXPECT_EQ(listing_fault(file_of(entry("F32", "[2]", "[0, 8]"), 8)), "nothing was thrown");
  for (const std::string& header :
       {entry("F32", "[2]", "[8, 0]"), entry("F32", "[3]", "[0, 8]"),
        entry("F32", "[-2]", "[0, 8]"), entry("F99", "[2]", "[0, 8]"), entry("F32", "[2]", "[0]"),
        entry("F32", "2", "[0, 8]"), entry("F32", "[2]", "[-8, 0]"),
        entry("F32", "[2.0]", "[0, 8]"), std::string("[]"),
        entry("F32", "[4611686018427387904, 4, 2]", "[0, 8]"), std::string(R"({"a": 1})"),
        std::string(R"({"a": {"shape": [2], "data_offsets": [0, 8]}})"), std::string("{"),
        // An overlap, and a gap.
        std::string(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                        "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})"),
        entry("F32", "[1]", "[4, 8]"), entry("F32", "[2]", R"({"a": 0, "b": 8})"),
        entry("F32", "[0, 9223372036854775808]", "[0, 0]"),
        entry("F32", "[2]", "[0, 18446744073709551615]")}) {
    EXPECT_THAT(listing_fault(file_of(header, 8)), HasSubstr("not a whole safetensors file"))
        << header;
  }
}

TEST_F(Safetensors, OfManyTensorsAreListedInTheTimeThatTheirNumberTakes) {
  constexpr int kTensors = 100'000;  // compared with each other they would take minutes
  std::string header;
  for (int i = 0; i < kTensors; ++i) {
    header += (i == 0 ? "{\"" : ",\"") + std::to_string(i) +
              R"(": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})";
  }
  put(path_, file_of(header + "}", 0));
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(list_safetensors(InputFile(path_)).size(), std::size_t{kTensors});
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST_F(Safetensors, AreNamedInOneShortLine) {
  const std::string place = R"(: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})";
  put(path_, file_of(R"({"a\nb)" + std::string(5000, 'x') + '"' + place, 8));
  const std::string fault = user_error_of([&] {
    read_safetensors(InputFile(path_), {{"a", at::zeros({2})}});
  });
  EXPECT_THAT(fault, HasSubstr("tensor a\\nbxx"));
  EXPECT_LT(fault.size(), 500U);
}

TEST_F(Safetensors, ThatCannotBeWrittenLeaveNoFile) {
  EXPECT_THROW(write_safetensors(directory_ / "absent" / "file", tensors_), WriteError);
  EXPECT_FALSE(std::filesystem::exists(directory_ / "absent"));
}

}  // namespace
}  // namespace transnormer
