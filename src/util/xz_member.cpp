#include <lzma.h>

#include <utility>

#include "util/compression.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

// One stream of the .xz format, of any number of blocks, by liblzma.
class XzMember : public Member {
 public:
  explicit XzMember(std::string name) : name_(std::move(name)) {}
  ~XzMember() override { lzma_end(&stream_); }

  void begin() override {
    constexpr std::int64_t kBesideTheWindow = 1 << 20;
    judge(lzma_stream_decoder(&stream_, kLargestWindow + kBesideTheWindow,
                              LZMA_TELL_UNSUPPORTED_CHECK));
  }

  Step step(std::string_view input, std::span<char> output) override {
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(input.data());
    stream_.avail_in = input.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(output.data());
    stream_.avail_out = output.size();
    const lzma_ret result = lzma_code(&stream_, LZMA_RUN);
    judge(result);
    return {input.size() - stream_.avail_in, output.size() - stream_.avail_out,
            result == LZMA_STREAM_END};
  }

 private:
  void judge(lzma_ret result) const {
    switch (result) {
      case LZMA_OK:
      case LZMA_STREAM_END:
      case LZMA_BUF_ERROR:  // it needs more input or output
        return;
      case LZMA_MEM_ERROR:
        fail("cannot be read: there is no memory for it");
      case LZMA_MEMLIMIT_ERROR:
        fail("wants a window of " + format_bytes(static_cast<double>(lzma_memusage(&stream_))) +
             " to be read, above the limit of " +
             format_bytes(static_cast<double>(kLargestWindow)) +
             "; compress it anew with a smaller one, such as xz -9");
      case LZMA_OPTIONS_ERROR:
      case LZMA_UNSUPPORTED_CHECK:
        fail("is xz data of a kind that is not known here; compress it anew with xz -9");
      default:
        fail("is damaged: its xz data cannot be read");
    }
  }
  [[noreturn]] void fail(const std::string& why) const { throw UserError(name_ + ": " + why); }

  std::string name_;
  lzma_stream stream_ = LZMA_STREAM_INIT;
};

}  // namespace

std::unique_ptr<Member> make_xz_member(const std::string& name) {
  return std::make_unique<XzMember>(name);
}

}  // namespace transnormer
