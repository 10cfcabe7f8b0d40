// Workers that do what an honest one does not, and those that were set aside for it (D7 of
// core_driver.cc; docs/decisions/065-workers-set-aside.md).
//
//   honest --OnOffence, that proves it--> set aside --lifted, LookAtQuarantine--> honest
//
// Proof is what the supervisor itself says: that it has a session which it was never given. What
// an executor says is no proof, since its tenant may have taken it over and could have every worker
// set aside: it is counted, and is proof when executors of two accounts did it on one worker within
// a day. And clients that say nothing.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/data_path/core_driver_entries.h"
#include "gateway/data_path/host.h"
#include "gateway/data_path/observer.h"
#include "proto/fleet.pb.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway {

namespace {

constexpr size_t kAccountsForProof = 2;
constexpr size_t kSuspectsMax = 4096;  // whoever has the fleet secret makes identities as it likes
// A worker that lies does so again soon. Of two accounts that take their executors over, months
// apart, it knows nothing.
constexpr int64_t kSuspicionNs = 24 * 3600 * kSecondNs;

}  // namespace

absl::Status CoreDriver::SetQuarantine(WorkerQuarantine* quarantine) {
  auto rows = quarantine->Read();
  if (!rows.ok()) return rows.status();
  std::lock_guard lock(mutex_);
  quarantine_ = quarantine;
  for (SetAsideWorker& row : *rows) {
    const std::string identity = row.identity;
    aside_[identity] = std::make_unique<Aside>(Aside{std::move(row), /*is_written=*/true});
  }
  return absl::OkStatus();
}

// Of a session that a worker names on its control stream. It may name what ended a moment ago, or
// went elsewhere; never what it did not have.
void CoreDriver::CheckSpoken(WorkerId id, const SessionId& session) {
  const Worker* const worker = FindWorker(id);
  const Session* const known = Find(session);
  if (worker == nullptr || worker->is_cut || known == nullptr || !core_.IsElsewhere(session, id))
    return;
  if (known->is_restored || known->had_by.contains(worker->identity) ||
      worker->claimed.contains(session))
    return;
  OnOffence(id, session, telemetry::WorkerOffence::kOtherSession);
}

bool CoreDriver::MayClaim(WorkerId id, const SessionId& session, Token token) {
  Worker& worker = *workers_.at(id);
  const Session* const known = Find(session);
  if (known == nullptr) return false;
  worker.claimed.insert(session);
  if (KnowsToken(*known, token)) return true;
  if (!known->is_restored && !known->had_by.contains(worker.identity))
    OnOffence(id, session, telemetry::WorkerOffence::kClaim);
  return false;
}

// ---- how much it may say ------------------------------------------------------------------------

void CoreDriver::BeginAllowances(Worker& worker) {
  const MonoTime now = host_->Now();
  if (!worker.owner.has_value()) {
    worker.receipts = std::make_shared<Allowance>(signing::kReceiptsMax, now);
    return;
  }
  std::shared_ptr<Allowance>& own = own_receipts_[*worker.owner];
  if (own == nullptr) own = std::make_shared<Allowance>(signing::kReceiptsMax, now);
  worker.receipts = own;
  worker.events.emplace(kOwnEventsAtOnce, now);
}

bool CoreDriver::MaySpeak(WorkerId id) {
  std::lock_guard lock(mutex_);
  Worker* const worker = FindWorker(id);
  if (worker == nullptr || worker->is_cut) return false;
  if (!worker->events.has_value()) return true;
  worker->events->Fill(kOwnEventsPerS, kOwnEventsAtOnce, host_->Now());
  if (worker->events->Take(1)) return true;
  Cut(*worker, absl::ResourceExhaustedError(absl::StrCat(
                   "the worker says too much: a machine of an account's own may send ",
                   kOwnEventsPerS, " messages a second")));
  return false;
}

// No more than what it was given and named before; that only gets less.
bool CoreDriver::MayName(WorkerId id, size_t sessions) {
  Worker* const worker = FindWorker(id);
  if (worker == nullptr || worker->is_cut) return false;
  if (sessions > std::max(worker->sessions_named, kSessionsBeyondMax)) {
    const size_t given = core_.SessionsOn(id);
    if (sessions > given + kSessionsBeyondMax) {
      Cut(*worker, absl::ResourceExhaustedError(
                       absl::StrCat("the worker says that it has ", sessions,
                                    " sessions; it was given ", given)));
      return false;
    }
  }
  worker->sessions_named = sessions;
  return true;
}

void CoreDriver::Cut(Worker& worker, const absl::Status& why) {
  if (std::exchange(worker.is_cut, true)) return;
  telemetry::LogWarning("worker_cut", {{"worker", worker.name}, {"why", why.ToString()}});
  worker.endpoint->End(why);
}

// ---- offences -----------------------------------------------------------------------------------

void CoreDriver::TakeOffences() {
  std::vector<std::pair<SessionId, telemetry::WorkerOffence>> all;
  for (const auto& [id, session] : sessions_)
    if (session->relay != nullptr)
      if (const auto offence = session->relay->TakeOffence()) all.emplace_back(id, *offence);
  for (const auto& [id, offence] : all)
    if (const auto worker = core_.WorkerOf(id)) OnOffence(*worker, id, offence);
}

void CoreDriver::OnOffence(WorkerId id, const SessionId& session, telemetry::WorkerOffence kind) {
  using enum telemetry::WorkerOffence;
  const Worker* const worker = FindWorker(id);
  if (worker == nullptr) return;
  const Session* const known = Find(session);
  const TenantId tenant =
      known != nullptr && known->relay != nullptr ? known->relay->tenant() : TenantId{};
  telemetry::CountAs(telemetry::Metric::kWorkerOffences, kind);
  observer_->OnWorkerOffence({session, tenant, ""}, worker->name, telemetry::NameOf(kind));
  if (kind == kOtherSession) return SetAside(id, "it spoke for a session that it was never given");
  if (kind == kReceiptConflict) return SetAside(id, std::string(kContradictsItself));
  if (kind == kReceipt) return;     // of a lease that the books name otherwise, or forgot
  if (kind == kClaim) return;       // its file may be a copy, of a worker that had the session
  if (kind == kDeviceTime) return;  // where this machine slept, all of its workers seem too quick
  ForgetOldSuspicions();
  Suspicions& accounts = suspects_[worker->identity];
  accounts[tenant] = host_->Now();
  if (accounts.size() >= kAccountsForProof)
    SetAside(id, absl::StrCat("executors of ", accounts.size(),
                              " accounts sent what none sends; the last: ",
                              std::string(telemetry::NameOf(kind))));
}

// And, where there are too many, the one that is oldest.
void CoreDriver::ForgetOldSuspicions() {
  const MonoTime now = host_->Now();
  for (auto& [identity, accounts] : suspects_)
    std::erase_if(accounts,
                  [&](const auto& entry) { return now.ns - entry.second.ns > kSuspicionNs; });
  std::erase_if(suspects_, [](const auto& suspect) { return suspect.second.empty(); });
  if (suspects_.size() < kSuspectsMax) return;
  const auto last_of = [](const auto& suspect) {
    MonoTime last;
    for (const auto& [tenant, at] : suspect.second) last = std::max(last, at);
    return last;
  };
  suspects_.erase(
      std::min_element(suspects_.begin(), suspects_.end(),
                       [&](const auto& a, const auto& b) { return last_of(a) < last_of(b); }));
}

// A machine of an account's own has another identity whenever it likes, and harms nobody else: its
// stream ends, and nothing of it is kept.
void CoreDriver::SetAside(WorkerId id, const std::string& why) {
  Worker& worker = *workers_.at(id);
  if (worker.owner.has_value()) {
    if (worker.is_cut) return;
    Cut(worker, absl::PermissionDeniedError(absl::StrCat("the worker is refused: ", why)));
    TellProgress();
    return Tell(WorkerSetAside{id, /*aside=*/true});
  }
  SetAside(worker.identity, worker.name, why);
}

// Also one that has left: it is what it was when it comes back.
void CoreDriver::SetAside(const std::string& identity, std::string_view name,
                          const std::string& why) {
  if (aside_.contains(identity)) return;
  aside_[identity] = std::make_unique<Aside>(
      Aside{{identity, std::string(name.substr(0, name.rfind('#'))), why, host_->WallNow()}});
  suspects_.erase(identity);
  observer_->OnWorkerSetAside(name, identity, why);
  TellAside(identity, true);
  LookAtQuarantine();
}

// A connection that is about to be noticed as broken is from the same host as the one that follows.
void CoreDriver::LookAtIdentity(WorkerId id) {
  const Worker& worker = *workers_.at(id);
  if (const auto aside = aside_.find(worker.identity); aside != aside_.end())
    observer_->OnWorkerSetAside(worker.name, worker.identity, aside->second->worker.why);
  const std::string address = worker.endpoint->address();
  for (const auto& [other_id, other] : workers_) {
    if (other_id == id || other->identity != worker.identity) continue;
    const std::string other_address = other->endpoint->address();
    if (other_address == address) continue;
    return observer_->OnSameIdentity(worker.name, address, other->name, other_address);
  }
}

// Two connections may show one identity.
void CoreDriver::TellAside(const std::string& identity, bool aside) {
  std::vector<WorkerId> those;
  for (const auto& [id, worker] : workers_)
    if (worker->identity == identity) those.push_back(id);
  TellProgress();  // what its sessions repeat elsewhere is free up to where their clients saw them
  for (const WorkerId id : those) Tell(WorkerSetAside{id, aside});
}

// Writes what is not written yet, until it is; then looks who was lifted. Who is written after the
// look has begun may be missing in it.
void CoreDriver::LookAtQuarantine() {
  // Once the gateway stops, a job that is posted under the lock may run there and then.
  if (quarantine_ == nullptr || aside_.empty() || stopping_) return;
  std::vector<SetAsideWorker> unwritten;
  std::set<std::string> written;
  for (const auto& [identity, aside] : aside_)
    aside->is_written ? static_cast<void>(written.insert(identity))
                      : unwritten.push_back(aside->worker);
  host_->PostKeys([this, unwritten = std::move(unwritten), written = std::move(written)] {
    std::vector<std::string> added, lifted;
    absl::Status trouble;
    for (const SetAsideWorker& worker : unwritten) {
      const absl::Status status = quarantine_->Add(worker);
      trouble.Update(status);
      if (status.ok()) added.push_back(worker.identity);
    }
    const auto rows = quarantine_->Read();
    trouble.Update(rows.status());
    if (rows.ok()) {
      std::set<std::string> still;
      for (const SetAsideWorker& row : *rows) still.insert(row.identity);
      for (const std::string& identity : written)
        if (!still.contains(identity)) lifted.push_back(identity);
    }
    std::lock_guard lock(mutex_);
    if (std::exchange(quarantine_trouble_, trouble) != trouble && !trouble.ok())
      observer_->OnQuarantineTrouble(trouble);
    for (const std::string& identity : added)
      if (const auto at = aside_.find(identity); at != aside_.end()) at->second->is_written = true;
    for (const std::string& identity : lifted) {
      const auto at = aside_.find(identity);
      if (at == aside_.end()) continue;
      observer_->OnWorkerLifted(at->second->worker.name, identity);
      aside_.erase(at);
      TellAside(identity, false);
    }
  });
}

// No offence: an honest worker says so of a device that failed.
void CoreDriver::OnDeviceOut(WorkerId worker, const proto::DeviceOut& out) {
  std::lock_guard lock(mutex_);
  Worker* const known = FindWorker(worker);
  if (known == nullptr || out.device() >= known->device_bytes.size() ||
      !known->devices_out.insert(out.device()).second)
    return;
  constexpr size_t kWhyBytesMax = 2048;  // as the worker cuts it
  observer_->OnDeviceOut(known->name, out.device(), out.why().substr(0, kWhyBytesMax));
  Tell(DeviceWentOut{worker, out.device()});
}

// A stream costs memory, and this one does nothing with it.
void CoreDriver::EndTheSilent() {
  const MonoTime now = host_->Now();
  const int64_t passed =
      std::min(last_tick_ ? now.ns - last_tick_->ns : 0, kSilenceOfTickMs * 1'000'000);
  last_tick_ = now;
  for (const auto& [conn, client] : clients_) {
    if (!client->silent_ns) continue;
    *client->silent_ns += passed;
    if (*client->silent_ns <= kOpenMs * 1'000'000) continue;
    client->silent_ns.reset();
    telemetry::CountRefused(telemetry::Refusal::kFirstMessage);
    client->endpoint().End(absl::DeadlineExceededError(
        absl::StrCat("a session begins with Open, within ", kOpenMs / 1000, " s")));
  }
}

}  // namespace outboard::gateway
