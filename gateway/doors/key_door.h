// Lets calls and streams in: looks at their keys on threads of its own, which wait for no account's
// work and for no write, delays the answers to wrong keys, and counts what an account has at a
// time.
//
//   Admit --> (FairQueue of addresses) --> key is good --> a slot of its account --> then(Admitted)
//                                      --> key is wrong --> waits (WrongKeys) --> then(error)
//
// Threads: any. `then` is called once, by a thread of the door's, or by the caller's while it
// stops.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "base/fair_queue.h"
#include "gateway/data_path/admitted.h"
#include "gateway/data_path/host.h"
#include "gateway/base/limits.h"
#include "gateway/base/thrown.h"
#include "gateway/doors/account_limits.h"
#include "gateway/doors/connection_table.h"
#include "gateway/doors/delayed_answers.h"
#include "gateway/doors/wrong_keys.h"
#include "gateway/server/authenticator.h"

namespace outboard::gateway {

class KeyDoor final : public ClientAuth {
 public:
  // All arguments must outlive the door.
  KeyDoor(Authenticator* authenticator, AccountLimits* limits, Refusals* refusals);
  ~KeyDoor() override { Stop(); }

  // Told of peers whose key is good, from now on.
  void SetConnections(ConnectionTable* connections);

  using Then = std::function<void(absl::StatusOr<Admitted>)>;
  // Errors: those of Authenticator::Client and AccountLimits
  //         UNAUTHENTICATED  a proxy's word that does not count (gateway/tls/trusted_proxy.h)
  //         UNAVAILABLE  the address has too many wrong keys that wait for their answers
  void Admit(const Credentials& credentials, Scopes any_of, SlotKind slot, Then then);

  // For a session.
  void Admit(const Credentials& credentials, Then then) override {
    Admit(credentials, KeyScope::kRun, SlotKind::kStream, std::move(then));
  }
  absl::Status MayOpen(TenantId tenant) override;
  void RefuseOpeningLater(std::function<void()> answer) override {
    answers_.After(std::chrono::milliseconds(kOpeningRefusedMs), std::move(answer));
  }
  std::string PeerOf(const Credentials& credentials) const override;
  absl::Status Check(const std::string& key_id) override { return authenticator_->Check(key_id); }
  // Runs `job`, which looks at keys, on a thread of the door's.
  void Post(std::function<void()> job) { keys_.Post(kOwnTurn, std::move(job)); }

  // Answers what waits, then ends the threads.
  void Stop();

 private:
  static constexpr uint64_t kOwnTurn = 0;

  absl::StatusOr<Admitted> Look(const Credentials& credentials, Scopes any_of, SlotKind kind);
  void Refuse(const absl::Status& why, const AddressKey& address, const Then& then);
  bool MayAsk(const Credentials& credentials, const AddressKey& address) const;

  Authenticator* const authenticator_;
  AccountLimits* const limits_;
  Refusals* const refusals_;
  WrongKeys wrong_;

  mutable std::mutex mutex_;
  ConnectionTable* connections_ = nullptr;
  std::unordered_set<size_t> good_;  // hashes of keys that were good lately
  FairQueue keys_{{.threads = kAuthThreads, .caught = [](uint64_t) {
                     ErrorOfThrown("a job of the door").IgnoreError();
                   }}};
  DelayedAnswers answers_;
};

}  // namespace outboard::gateway
