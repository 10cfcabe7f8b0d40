#include "base/random_bytes.h"

#include <openssl/rand.h>

namespace outboard {

absl::StatusOr<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    return absl::UnavailableError("the system provides no random bytes");
  return bytes;
}

}  // namespace outboard
