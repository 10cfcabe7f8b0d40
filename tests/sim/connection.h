// A connection like TCP: delivers the bytes of each direction in order, late, without gaps. It may
// stall; it may break, which the two ends learn at different times, while data sent before may
// still arrive.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "tests/sim/world.h"

namespace outboard::sim {

// The callbacks of one end.
template <typename In>
struct End {
  std::function<void(In)> on_message;
  std::function<void()> on_lost;
  bool open = true;  // false: no more callbacks
};

// `Up` goes from the end that dialled to the one that accepted, `Down` back.
template <typename Up, typename Down>
class Connection : public std::enable_shared_from_this<Connection<Up, Down>> {
 public:
  explicit Connection(World* world) : world_(world) {}

  End<Down> dialler;
  End<Up> acceptor;

  void SendUp(Up message) { Send(up_, acceptor, std::move(message)); }
  void SendDown(Down message) { Send(down_, dialler, std::move(message)); }
  // From now on one message in N arrives twice: a forwarder may not know whether it has already
  // forwarded a frame.
  void Duplicate(uint64_t one_in) { duplicate_one_in_ = one_in; }

  void Stall(int64_t for_ns) { up_ = down_ = std::max({up_, down_, world_->now() + for_ns}); }
  // Data sent from now on is lost.
  void Break() {
    if (std::exchange(broken_, true)) return;
    const bool drains = world_->OneIn(2);  // else data in flight is lost as well
    Tell(dialler, world_->Between(0, 3000) * kMs, drains);
    Tell(acceptor, world_->Between(0, 3000) * kMs, drains);
  }

 private:
  template <typename Message>
  void Send(int64_t& last, End<Message>& end, Message message) {
    if (broken_) return;
    const bool twice = duplicate_one_in_ != 0 && world_->OneIn(duplicate_one_in_);
    if (twice) Schedule(last, end, message);
    Schedule(last, end, std::move(message));
  }
  template <typename Message>
  void Schedule(int64_t& last, End<Message>& end, Message message) {
    last = std::max(last, world_->now() + world_->Between(1, 40) * kMs);
    world_->After(last - world_->now(),
                  [self = this->shared_from_this(), &end, message = std::move(message)]() mutable {
                    if (end.open && end.on_message) end.on_message(std::move(message));
                  });
  }
  template <typename Message>
  void Tell(End<Message>& end, int64_t delay_ns, bool drains) {
    if (!drains) end.on_message = nullptr;
    world_->After(delay_ns, [self = this->shared_from_this(), &end] {
      if (std::exchange(end.open, false) && end.on_lost) end.on_lost();
    });
  }

  World* const world_;
  int64_t up_ = 0, down_ = 0;  // when the last message arrives
  uint64_t duplicate_one_in_ = 0;
  bool broken_ = false;
};

}  // namespace outboard::sim
