// What has come on a simulated connection and is not taken yet.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "tests/sim/host.h"
#include "tests/sim/world.h"

namespace outboard::sim {

// An adapter's half of a connection: incoming messages are queued while the port pauses; now and
// then it asks the other side to pause, as a full queue does.
template <typename Message>
class Inbox {
 public:
  void OnMessage(Message message) {
    if (pauses_ <= 0 && waiting_.empty()) {
      if (!take(std::move(message))) ++pauses_;
      return;
    }
    waiting_.push_back(std::move(message));
    Deliver();
  }
  // True if the other side pauses; `writable` is called later.
  template <typename Self, typename Writable>
  static bool AskWritable(SimulatedHost* host, bool& asked, std::weak_ptr<Self> self,
                          Writable writable) {
    if (!asked && !host->world().OneIn(60)) return false;
    if (std::exchange(asked, true)) return true;
    host->After(host->world().Between(1, 1000) * kMs, [self, &asked, writable] {
      const std::shared_ptr<Self> alive = self.lock();
      if (alive == nullptr) return;
      asked = false;
      writable(*alive);
    });
    return true;
  }
  void Pause() { ++pauses_; }
  // Deferred: locks are held during the call.
  template <typename Self>
  void Resume(SimulatedHost* host, std::weak_ptr<Self> self) {
    --pauses_;
    host->After(0, [this, self] {
      if (const std::shared_ptr<Self> alive = self.lock()) Deliver();
    });
  }
  std::function<bool(Message)> take;  // false: stop until Resume

 private:
  void Deliver() {
    while (pauses_ <= 0 && !waiting_.empty()) {
      Message message = std::move(waiting_.front());
      waiting_.pop_front();
      if (!take(std::move(message))) ++pauses_;
    }
  }

  std::deque<Message> waiting_;
  int pauses_ = 0;  // pauses requested; below 0 if an end was reported before its start was counted
};

}  // namespace outboard::sim
