#include "wire/blobs/source.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace outboard::wire {

BlobSource SourceOf(std::string_view bytes) {
  return {bytes.size(), [bytes](uint64_t offset, std::span<char> out) {
            std::memcpy(out.data(), bytes.data() + offset, out.size());
            return absl::OkStatus();
          }};
}

BlobSource SourceOf(int fd, uint64_t offset, uint64_t size_bytes) {
  return {size_bytes, [fd, begin = offset](uint64_t offset, std::span<char> out) {
            for (size_t at = 0; at < out.size();) {
              const ssize_t got = pread(fd, out.data() + at, out.size() - at,
                                        static_cast<off_t>(begin + offset + at));
              if (got < 0 && errno == EINTR) continue;
              if (got < 0)
                return absl::UnknownError(absl::StrCat("cannot read the file: ", strerror(errno)));
              if (got == 0) return absl::DataLossError("the file became shorter while it was read");
              at += static_cast<size_t>(got);
            }
            return absl::OkStatus();
          }};
}

}  // namespace outboard::wire
