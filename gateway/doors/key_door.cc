#include "gateway/doors/key_door.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "gateway/base/thrown.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {

constexpr size_t kGoodKeysMax = 8192;

// Whose turn a call is: its address's, or, on this machine, where a proxy's calls come from too,
// its connection's.
uint64_t TurnOf(const AddressKey& address, std::string_view peer) {
  const uint64_t turn = address.is_local ? std::hash<std::string_view>()(peer)
                                         : address.bits ^ (uint64_t{address.is_v6} << 63);
  return std::max<uint64_t>(turn, 1);
}

}  // namespace

KeyDoor::KeyDoor(Authenticator* authenticator, AccountLimits* limits, Refusals* refusals)
    : authenticator_(authenticator), limits_(limits), refusals_(refusals) {}

void KeyDoor::SetConnections(ConnectionTable* connections) {
  std::lock_guard lock(mutex_);
  connections_ = connections;
}

absl::Status KeyDoor::MayOpen(TenantId tenant) {
  return limits_->MayOpen(tenant, AccountLimits::Clock::now());
}

// A key that was good a moment ago is let in where an address has many wrong ones: they may be of
// others behind the same address.
bool KeyDoor::MayAsk(const Credentials& credentials, const AddressKey& address) const {
  if (wrong_.MayAsk(address, WrongKeys::Clock::now())) return true;
  std::lock_guard lock(mutex_);
  return good_.contains(std::hash<std::string>()(credentials.key));
}

void KeyDoor::Admit(const Credentials& credentials, Scopes any_of, SlotKind slot, Then then) {
  const absl::StatusOr<std::string> peer = authenticator_->PeerOf(credentials);
  // A word that does not count is as good as a wrong key, of whoever is at the other end.
  const std::string& from = peer.ok() ? *peer : credentials.peer;
  const AddressKey address = AddressKeyOfPeer(from);
  if (!MayAsk(credentials, address)) {
    refusals_->Count(RefusalReason::kWrongKeysOfAddress, address.ToString());
    return then(absl::UnavailableError(
        "too many wrong keys came from this address; try again in some seconds"));
  }
  if (!peer.ok()) {
    telemetry::CountRefused(telemetry::Refusal::kKeyAddress);
    return Refuse(peer.status(), address, then);
  }
  keys_.Post(TurnOf(address, from),
             [this, credentials, address, any_of, slot, then = std::move(then)] {
               // A flood of streams that are reset at once must not fill the queue: each keeps its
               // call until it is answered.
               if (credentials.has_hung_up && credentials.has_hung_up())
                 return then(absl::CancelledError("the caller has hung up"));
               absl::StatusOr<Admitted> admitted = ErrorIfThrown(
                   "looking at a key", [&] { return Look(credentials, any_of, slot); });
               if (!absl::IsUnauthenticated(admitted.status())) return then(std::move(admitted));
               {
                 std::lock_guard lock(mutex_);
                 good_.erase(std::hash<std::string>()(credentials.key));  // no longer
               }
               Refuse(admitted.status(), address, then);
             });
}

// Counts a wrong key, and answers it when its address has waited for that.
void KeyDoor::Refuse(const absl::Status& why, const AddressKey& address, const Then& then) {
  refusals_->Count(RefusalReason::kWrongKey, address.ToString());
  const auto now = WrongKeys::Clock::now();
  const auto delay = wrong_.Delay(address, now);
  if (!delay.has_value()) return then(why);
  answers_.After(*delay, [this, address, then, why] {
    wrong_.Answered(address);
    then(why);
  });
}

std::string KeyDoor::PeerOf(const Credentials& credentials) const {
  return authenticator_->PeerOf(credentials).value_or(credentials.peer);
}

absl::StatusOr<Admitted> KeyDoor::Look(const Credentials& credentials, Scopes any_of,
                                       SlotKind kind) {
  auto identity = authenticator_->Client(credentials, any_of);
  if (!identity.ok()) return identity.status();
  ConnectionTable* connections;
  {
    std::lock_guard lock(mutex_);
    connections = connections_;
    if (good_.size() >= kGoodKeysMax) good_.clear();
    good_.insert(std::hash<std::string>()(credentials.key));
  }
  if (connections != nullptr) connections->Proved(credentials.peer);
  auto slot = limits_->Begin(identity->tenant, kind);
  if (!slot.ok()) return slot.status();
  return Admitted{*std::move(identity), *std::move(slot)};
}

void KeyDoor::Stop() {
  keys_.Stop();
  answers_.Stop();
}

}  // namespace outboard::gateway
