// Looks at the fleet secret of whoever calls on the port for workers. A wrong one costs its address
// what a wrong key costs: a delay that grows (gateway/doors/wrong_keys.h). While too many answers
// of an address wait, its secrets are not looked at, unless the right one came from there before:
// the other workers behind that address are not locked out by a bad one.
//
// Threads: any; one of its own for the answers that wait.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "gateway/doors/wrong_keys.h"

namespace outboard::gateway {

class FleetDoor {
 public:
  using Check = std::function<absl::Status(std::string_view secret)>;
  // `check`: UNAUTHENTICATED where the secret is wrong. Any thread may call it.
  explicit FleetDoor(Check check) : check_(std::move(check)), answers_([this] { Answer(); }) {}
  ~FleetDoor() { Stop(); }

  // True: the caller is let in, and `refuse` is not called. False: `refuse` is called once, later
  // or at once, with
  //   UNAUTHENTICATED  without the secret, or with a wrong one
  //   UNAVAILABLE      too many wrong ones of this address wait for their answers
  bool Admit(std::string_view secret, std::string_view peer,
             std::function<void(absl::Status)> refuse);

  void Stop();  // answers what waits

 private:
  void Answer();

  const Check check_;
  WrongKeys wrong_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::set<AddressKey> good_;  // addresses that the right secret came from
  std::multimap<WrongKeys::Clock::time_point, std::function<void()>> later_;
  bool stopping_ = false;
  std::thread answers_;
};

}  // namespace outboard::gateway
