#include <zstd.h>
#include <zstd_errors.h>

#include <utility>

#include "util/compression.h"
#include "util/error.h"
#include "util/units.h"

namespace transnormer {
namespace {

// One frame of RFC 8878, by libzstd.
class ZstdMember : public Member {
 public:
  explicit ZstdMember(std::string name) : name_(std::move(name)), stream_(ZSTD_createDStream()) {
    if (!stream_) {
      fail("cannot be read: there is no memory for it");
    }
    judge(ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, kLargestWindowLog));
  }

  void begin() override { judge(ZSTD_DCtx_reset(stream_.get(), ZSTD_reset_session_only)); }

  Step step(std::string_view input, std::span<char> output) override {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    ZSTD_outBuffer out{output.data(), output.size(), 0};
    const std::size_t left = ZSTD_decompressStream(stream_.get(), &out, &in);
    judge(left);
    return {in.pos, out.pos, left == 0};
  }

 private:
  void judge(std::size_t result) const {
    if (ZSTD_isError(result) == 0) {
      return;
    }
    switch (ZSTD_getErrorCode(result)) {
      case ZSTD_error_memory_allocation:
        fail("cannot be read: there is no memory for it");
      case ZSTD_error_frameParameter_windowTooLarge:
        fail("wants a window above the limit of " +
             format_bytes(static_cast<double>(kLargestWindow)) +
             " to be read; compress it anew with a smaller one, such as zstd --ultra -22");
      case ZSTD_error_dictionary_wrong:
        fail(
            "was compressed with a dictionary of zstd, which is not at hand; compress it anew "
            "without one");
      default:
        fail(std::string("is damaged: its zstd data cannot be read (") + ZSTD_getErrorName(result) +
             ')');
    }
  }
  [[noreturn]] void fail(const std::string& why) const { throw UserError(name_ + ": " + why); }

  struct Free {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  std::string name_;
  std::unique_ptr<ZSTD_DStream, Free> stream_;
};

}  // namespace

std::unique_ptr<Member> make_zstd_member(const std::string& name) {
  return std::make_unique<ZstdMember>(name);
}

}  // namespace transnormer
