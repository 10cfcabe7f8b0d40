// Clients' keys, and a model of what a revoked one may still do: from kEndsWithin on, nothing that
// was open with it (docs/keys.md).
//
//   K1  no session opens with it, or is resumed
//   K2  no item of a session whose client has it goes to an executor
//   K3  such a session is charged for no more than it takes to save itself and to be idle
//   K5  and no session opens with a key of another account than its own
//
// A key is the number of its account ("2"), or, where it may be revoked, that and its own ("2:1").
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gateway/data_path/admitted.h"
#include "gateway/data_path/host.h"
#include "gateway/ledger/meter.h"
#include "tests/sim/host.h"
#include "tests/sim/planted.h"
#include "tests/sim/world.h"

namespace outboard::sim {

// Of a key that clients show; empty: it has none.
inline std::string KeyIdOf(const std::string& key) {
  return key.find(':') != std::string::npos ? key : "";
}

// Survives a crash of the gateway.
class KeyRing {
 public:
  explicit KeyRing(World* world) : world_(world) {}

  void Revoke(const std::string& key) { revoked_.emplace(key, world_->now()); }
  bool IsRevoked(const std::string& key) const { return revoked_.contains(key); }

  // A client with this key is told that the session is open.
  void Opens(const gateway::SessionId& session, const std::string& key) {
    if (HasEnded(key)) world_->Broken("K1: a session opens with a key that was revoked");
    const auto at = sessions_.find(session);
    if (at != sessions_.end() && std::stoll(at->second.key) != std::stoll(key))
      world_->Broken("K5: a session of account ", std::stoll(at->second.key), " opens for ", key);
    sessions_[session] = {.key = key};
  }
  // An item of its client is on its way to the executor.
  void Runs(const gateway::SessionId& session) {
    const auto at = sessions_.find(session);
    if (at != sessions_.end() && HasEnded(at->second.key))
      world_->Broken("K2: an item runs of a session whose key was revoked");
  }
  void Charged(const gateway::Charge& charge) {
    const auto at = sessions_.find(charge.device.lease.session);
    if (at == sessions_.end() || !HasEnded(at->second.key)) return;
    // Of charges that reach back, the part since then.
    const int64_t since_ms = (world_->now() - revoked_.at(at->second.key) - kEndsWithin) / kMs;
    int64_t& charged_ms = at->second.charged_ms[charge.device.device];
    charged_ms += std::min(charge.to_ms - charge.from_ms, since_ms);
    if (charged_ms > kChargedMsMax)
      world_->Broken("K3: ", charged_ms,
                     " ms are charged of a session after its key was revoked");
  }

 private:
  static constexpr int64_t kEndsWithin = 5 * kSecond;
  static constexpr int64_t kChargedMsMax = 6000;  // it may wait for a snapshot, and then be idle
  struct Session {
    std::string key;
    std::map<uint32_t, int64_t> charged_ms = {};  // of each device, since that has ended
  };

  bool HasEnded(const std::string& key) const {
    const auto at = revoked_.find(key);
    return at != revoked_.end() && world_->now() - at->second > kEndsWithin;
  }

  World* const world_;
  std::map<std::string, int64_t> revoked_;  // since when
  std::map<gateway::SessionId, Session> sessions_;
};

// Of one process.
class KeyDoor final : public gateway::ClientAuth {
 public:
  static constexpr int64_t kAccounts = 3;
  KeyDoor(SimulatedHost* host, const KeyRing* keys, Planted planted)
      : host_(host), keys_(keys), planted_(planted) {}
  void Admit(const gateway::Credentials& credentials,
             std::function<void(absl::StatusOr<gateway::Admitted>)> then) override {
    const std::string& key = credentials.key;
    gateway::Identity identity{gateway::TenantId{std::stoll(key)}, ""};
    identity.key_id = KeyIdOf(key);
    if (const size_t number = key.find(':') + 1; number > 0) {  // else it has no id
      if (planted_ == Planted::kAnyAccount)
        identity.tenant = {1 + std::stoll(key.substr(number)) % kAccounts};
      if (planted_ == Planted::kFirstKeyPays) identity.key_id = key.substr(0, key.find('.')) + ".0";
    }
    host_->Post([this, identity = std::move(identity), then = std::move(then)] {
      if (planted_ != Planted::kAdmitsRevoked && keys_->IsRevoked(identity.key_id))
        return then(Revoked());
      then(gateway::Admitted{identity});
    });
  }
  absl::Status Check(const std::string& key_id) override {
    return planted_ != Planted::kKeepsRevoked && keys_->IsRevoked(key_id) ? Revoked()
                                                                          : absl::OkStatus();
  }

 private:
  static absl::Status Revoked() { return absl::UnauthenticatedError("the key is revoked"); }

  SimulatedHost* const host_;
  const KeyRing* const keys_;
  const Planted planted_;
};

}  // namespace outboard::sim
