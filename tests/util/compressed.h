// Compressed texts for tests, made by the libraries that the formats' own tools use.
#pragma once

#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "util/compression.h"

namespace transnormer::test {

inline void require_made(bool made) {
  if (!made) {
    throw std::runtime_error("the text cannot be compressed");
  }
}

inline std::string gzipped(std::string_view text) {
  constexpr int kGzip = 16;
  z_stream stream{};
  require_made(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY) ==
               Z_OK);
  std::string bytes(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  require_made(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

// `block_bytes`: as several threads write it, in blocks of so many bytes.
inline std::string xz_made(std::string_view text, std::size_t block_bytes = 0) {
  lzma_stream stream = LZMA_STREAM_INIT;
  lzma_mt options{};
  options.threads = 2;
  options.block_size = block_bytes;
  options.check = LZMA_CHECK_CRC64;
  require_made((block_bytes > 0 ? lzma_stream_encoder_mt(&stream, &options)
                                : lzma_easy_encoder(&stream, 1, LZMA_CHECK_CRC64)) == LZMA_OK);
  std::string bytes(2 * text.size() + 65536, '\0');
  stream.next_in = reinterpret_cast<const std::uint8_t*>(text.data());
  stream.avail_in = text.size();
  stream.next_out = reinterpret_cast<std::uint8_t*>(bytes.data());
  stream.avail_out = bytes.size();
  lzma_ret result = LZMA_OK;
  while (result == LZMA_OK) {
    result = lzma_code(&stream, LZMA_FINISH);
  }
  require_made(result == LZMA_STREAM_END);
  bytes.resize(stream.total_out);
  lzma_end(&stream);
  return bytes;
}

inline std::string zstd_made(std::string_view text, int threads = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(context, ZSTD_c_nbWorkers, threads);  // where the library has threads
  std::string bytes(ZSTD_compressBound(text.size()), '\0');
  const std::size_t size =
      ZSTD_compress2(context, bytes.data(), bytes.size(), text.data(), text.size());
  ZSTD_freeCCtx(context);
  require_made(ZSTD_isError(size) == 0);
  bytes.resize(size);
  return bytes;
}

inline std::string compressed(Compression kind, std::string_view text) {
  return kind == Compression::gzip   ? gzipped(text)
         : kind == Compression::xz   ? xz_made(text)
         : kind == Compression::zstd ? zstd_made(text)
                                     : std::string(text);
}

inline const char* ending_of(Compression kind) {
  return kind == Compression::gzip ? ".gz" : kind == Compression::xz ? ".xz" : ".zst";
}

}  // namespace transnormer::test
