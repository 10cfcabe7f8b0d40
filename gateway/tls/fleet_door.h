// Looks at the fleet secret of whoever calls on the port for workers. A wrong one costs its address
// what a wrong key costs: a delay that grows (gateway/doors/wrong_keys.h). While too many answers
// of an address wait, its secrets are not looked at, unless the right one came from there before:
// the other workers behind that address are not locked out by a bad one.
//
// Threads: any; one of its own for the answers that wait.
#pragma once

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "gateway/doors/delayed_answers.h"
#include "gateway/doors/wrong_keys.h"

namespace outboard::gateway {

class FleetDoor {
 public:
  using Check = std::function<absl::Status(std::string_view secret)>;
  // `check`: UNAUTHENTICATED where the secret is wrong. Any thread may call it.
  explicit FleetDoor(Check check) : check_(std::move(check)) {}

  // True: the caller is let in, and `refuse` is not called. False: `refuse` is called once, later
  // or at once, with
  //   UNAUTHENTICATED  without the secret, or with a wrong one
  //   UNAVAILABLE      too many wrong ones of this address wait for their answers
  bool Admit(std::string_view secret, std::string_view peer,
             std::function<void(absl::Status)> refuse);

  // The same in two parts, for what is shown in a request (a node's claim) and looked at elsewhere.
  bool MayAsk(std::string_view peer);
  // What was shown is wrong: `refuse` is called once, later or at once, with `why`.
  void Refuse(std::string_view peer, const absl::Status& why,
              std::function<void(absl::Status)> refuse);

  void Stop() { answers_.Stop(); }  // answers what waits

 private:
  const Check check_;
  WrongKeys wrong_;
  std::mutex mutex_;
  std::set<AddressKey> good_;  // addresses that the right secret came from
  DelayedAnswers answers_;
};

}  // namespace outboard::gateway
