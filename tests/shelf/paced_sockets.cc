#include "tests/shelf/paced_sockets.h"

#include <dlfcn.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>

namespace outboard::test {
namespace {

std::atomic<uint64_t>& Rate() {
  static std::atomic<uint64_t> rate = [] {
    const char* const text = getenv("SHELF_BYTES_PER_S");
    return text == nullptr ? uint64_t{0} : strtoull(text, nullptr, 10);
  }();
  return rate;
}

}  // namespace

void SetSocketRate(uint64_t bytes_per_s) { Rate() = bytes_per_s; }

}  // namespace outboard::test

// In place of the C library's, for all that this process links or loads.
extern "C" int socket(int domain, int type, int protocol) noexcept {
  using Socket = int (*)(int, int, int);
  static const auto real = reinterpret_cast<Socket>(dlsym(RTLD_NEXT, "socket"));
  const int fd = real(domain, type, protocol);
  const uint64_t rate = outboard::test::Rate();
  const bool is_tcp = (domain == AF_INET || domain == AF_INET6) && (type & 0xF) == SOCK_STREAM;
  if (fd >= 0 && rate > 0 && is_tcp)
    setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
  return fd;
}
