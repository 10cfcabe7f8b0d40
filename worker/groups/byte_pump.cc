#include "worker/groups/byte_pump.h"

#include <errno.h>
#include <sys/socket.h>

#include <memory>

namespace outboard::worker {
namespace {

constexpr size_t kAtOnce = size_t{256} << 10;  // a socket's buffer holds about as much
constexpr size_t kTurn = size_t{2} << 20;      // of one Move

bool IsForNow(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

void BytePump::Move() {
  thread_local const auto scratch = std::make_unique<char[]>(kAtOnce);
  for (size_t moved = 0; !done_ && moved < kTurn;) {
    if (!Flush()) return;
    if (from_ended_) {
      shutdown(to_, SHUT_WR);
      done_ = true;
      return;
    }
    const ssize_t got = recv(from_, scratch.get(), kAtOnce, MSG_DONTWAIT);
    if (got < 0 && IsForNow(errno)) return;
    if (got <= 0) {
      error_ = got < 0 ? errno : 0;
      from_ended_ = true;
      continue;
    }
    moved += static_cast<size_t>(got);
    ssize_t sent = send(to_, scratch.get(), static_cast<size_t>(got), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && !IsForNow(errno)) return Broken();
    sent = sent < 0 ? 0 : sent;
    if (sent == got) continue;
    pending_.assign(scratch.get() + sent, static_cast<size_t>(got - sent));
    sent_ = 0;
    return;
  }
}

bool BytePump::Flush() {
  while (!pending_.empty()) {
    const ssize_t sent =
        send(to_, pending_.data() + sent_, pending_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (!IsForNow(errno)) Broken();
      return false;
    }
    sent_ += static_cast<size_t>(sent);
    if (sent_ == pending_.size()) pending_ = std::string();  // most links are idle most of the time
  }
  return true;
}

// Whoever still sends is not to wait for a reader.
void BytePump::Broken() {
  pending_ = std::string();
  shutdown(from_, SHUT_RD);
  done_ = true;
}

}  // namespace outboard::worker
