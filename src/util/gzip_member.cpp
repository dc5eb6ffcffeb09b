#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "util/compression.h"
#include "util/error.h"

namespace transnormer {
namespace {

// RFC 1952, by zlib.
class GzipMember : public Member {
 public:
  explicit GzipMember(std::string name) : name_(std::move(name)) {}
  ~GzipMember() override {
    if (is_open_) {
      inflateEnd(&stream_);
    }
  }

  void begin() override {
    constexpr int kGzipOnly = 16;
    const int result =
        is_open_ ? inflateReset(&stream_) : inflateInit2(&stream_, MAX_WBITS + kGzipOnly);
    if (result != Z_OK) {
      fail("cannot be read: there is no memory for it");
    }
    is_open_ = true;
  }

  Step step(std::string_view input, std::span<char> output) override {
    constexpr std::size_t kMost = std::numeric_limits<uInt>::max();
    const std::size_t in = std::min(input.size(), kMost);
    const std::size_t out = std::min(output.size(), kMost);
    // zlib does not write to its input, whatever the type says.
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
    stream_.avail_in = static_cast<uInt>(in);
    stream_.next_out = reinterpret_cast<Bytef*>(output.data());
    stream_.avail_out = static_cast<uInt>(out);
    const int result = inflate(&stream_, Z_NO_FLUSH);
    if (result == Z_MEM_ERROR) {
      fail("cannot be read: there is no memory for it");
    }
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
      fail(std::string("is damaged: its gzip data cannot be read") +
           (stream_.msg != nullptr ? std::string(" (") + stream_.msg + ')' : ""));
    }
    return {in - stream_.avail_in, out - stream_.avail_out, result == Z_STREAM_END};
  }

 private:
  [[noreturn]] void fail(const std::string& why) const { throw UserError(name_ + ": " + why); }

  std::string name_;
  z_stream stream_{};
  bool is_open_ = false;
};

}  // namespace

std::unique_ptr<Member> make_gzip_member(const std::string& name) {
  return std::make_unique<GzipMember>(name);
}

}  // namespace transnormer
