// How CoreDriver learns of executors: that they attach, what they keep, and how they end (D4 of
// core_driver.cc). Of a session on several devices the first rank that ends is the cause of what
// follows.
#include <memory>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gateway/accounts/accounts.h"
#include "gateway/accounts/worker_quarantine.h"
#include "gateway/base/limits.h"
#include "gateway/base/token.h"
#include "gateway/data_path/core_driver_entries.h"
#include "gateway/data_path/host.h"
#include "gateway/data_path/relay.h"
#include "proto/fleet.pb.h"
#include "telemetry/counters.h"
#include "wire/merkle.h"
#include "wire/status_code.h"

namespace outboard::gateway {

bool CoreDriver::KnowsToken(const Session& session, Token token) {
  return session.attach_hash.has_value() && *session.attach_hash == HashOf(token);
}

absl::StatusOr<std::shared_ptr<Relay>> CoreDriver::Attach(SessionId id, Token token,
                                                          ExecutorEndpoint* endpoint,
                                                          uint32_t rank) {
  std::lock_guard lock(mutex_);
  Session* const session = Find(id);
  if (session == nullptr || session->relay == nullptr || !KnowsToken(*session, token) ||
      !core_.Awaits(id, rank)) {  // D4
    telemetry::CountRefused(telemetry::Refusal::kExecutorToken);
    return absl::PermissionDeniedError("no executor of this session is expected");
  }
  std::shared_ptr<Relay> relay = session->relay;
  relay->SetExecutor(endpoint, rank);
  Tell(ExecutorAttached{id, host_->WallNow(), rank});
  return relay;
}

void CoreDriver::Detached(SessionId id, const Relay* relay, uint32_t rank) {
  std::lock_guard lock(mutex_);
  const auto is_current = [&] {
    const Session* const session = Find(id);
    return session != nullptr && session->relay.get() == relay;
  };
  if (!is_current()) return;
  if (const auto& ending = Find(id)->ending; ending.has_value() && ending->rank != rank) return;
  TellEnding(id);
  // The core ignores the report of an earlier placement; this executor's own still comes.
  if (is_current()) Find(id)->ending = Session::Ending{host_->Now(), std::nullopt, rank};
}

absl::StatusOr<TenantId> CoreDriver::TenantOf(SessionId id, Token token) const {
  std::lock_guard lock(mutex_);
  const Session* const session = Find(id);
  if (session == nullptr || !KnowsToken(*session, token))
    return absl::PermissionDeniedError("this is not the session's executor");
  // Started again a moment ago, or this worker is away: it asks once more, whoever it is by then.
  if (session->relay == nullptr)
    return absl::UnavailableError("the session's worker has not joined this gateway yet");
  return session->relay->tenant();
}

uint32_t CoreDriver::ExecutorsOf(SessionId id) const {
  std::lock_guard lock(mutex_);
  const Session* const session = Find(id);
  return session != nullptr && session->relay != nullptr ? session->relay->ranks() : 0;
}

absl::Status CoreDriver::CheckAskedFor(SessionId id, std::string_view name) const {
  std::lock_guard lock(mutex_);
  const Session* const session = Find(id);
  const Relay* const relay = session == nullptr ? nullptr : session->relay.get();
  if (relay != nullptr && relay->awaits_saved(name)) return absl::OkStatus();
  // A client that comes back, or that an earlier gateway had.
  if (relay == nullptr || !relay->has_open_client())
    return absl::UnavailableError("Keep: the session's client is not there to ask for it");
  if (relay->has_unseen_items())
    return absl::AbortedError(
        "Keep: whether a client asked for this checkpoint is not known any more; save it again");
  return absl::NotFoundError("Keep: no client has asked for this checkpoint");
}

void CoreDriver::KeepSnapshot(SessionId id, Token token, const std::string& root, uint64_t seq,
                              std::function<void(absl::Status)> done, uint32_t rank) {
  absl::Status refused;
  {
    std::lock_guard lock(mutex_);
    Session* const session = Find(id);
    if (!core_.Has(id)) {
      refused = absl::NotFoundError("the session has ended");
    } else if (session == nullptr || session->relay == nullptr || !KnowsToken(*session, token) ||
               !core_.MayKeep(id, seq)) {
      refused = absl::AbortedError("the session continues elsewhere, or from a later snapshot");
    } else if (session->relay->ranks() > 1) {
      refused = KeepPart(id, *session, rank, root, seq);
    } else {
      TellProgress(id, *session);  // it may move now
      // Queued first, and told behind the row all the same: nothing may throw once the row, which
      // names the snapshot, is queued.
      const auto refusal = std::make_shared<absl::Status>(GivenUp());
      writes_->Cork();
      const absl::Cleanup uncork = [this] { writes_->Uncork(); };
      if (!planted_.kept_before_written)
        writes_->Then([done, refusal](absl::Status written) {
          done(refusal->ok() ? std::move(written) : *refusal);
        });
      row_queued_of_.reset();
      Tell(SnapshotKept{id, root, seq});
      if (row_queued_of_ == id) *refusal = absl::OkStatus();  // D8: without a row it is not kept
      if (!planted_.kept_before_written) return;
    }
  }
  done(std::move(refused));
}

void CoreDriver::SnapshotNotKept(SessionId id, Token token) {
  std::lock_guard lock(mutex_);
  const Session* const session = Find(id);
  if (session != nullptr && KnowsToken(*session, token)) Tell(gateway::SnapshotNotKept{id});
}

// A snapshot of one item, or none: the parts of another one are of no use beside it.
absl::Status CoreDriver::KeepPart(SessionId id, Session& session, uint32_t rank,
                                  const std::string& root, uint64_t seq) {
  const std::optional<wire::Hash> manifest = wire::HashFromBytes(root);
  if (!manifest || rank >= session.relay->ranks())
    return absl::InvalidArgumentError(
        absl::StrCat("a part of rank ", rank, " of ", session.relay->ranks()));
  if (!session.parts.has_value()) session.parts.emplace(session.relay->ranks());  // it was adopted
  session.relay->PartKept(rank, seq);
  if (!session.parts->Add(rank, seq, *manifest)) return absl::OkStatus();
  const std::vector<wire::Hash> parts = session.parts->whole();
  if (session.runs != nullptr) {
    const std::optional<proto::GroupState> noted = session.runs->TakeNoted(seq);
    session.group_state = noted.has_value() ? noted->SerializeAsString() : "";
  }
  TellProgress(id, session);
  Tell(SnapshotKept{id, RootOfParts(parts), seq});
  if (has_given_up_) return GivenUp();  // whichever the row names is still protected
  writes_->Then([this, id, seq, parts](const absl::Status& written) {
    if (!written.ok()) return;
    std::shared_ptr<Relay> relay;
    {
      std::lock_guard lock(mutex_);
      if (const Session* const now = Find(id)) relay = now->relay;
    }
    if (relay != nullptr) relay->SnapshotDurable(seq);
    host_->Post([blobs = blobs_, id, seq, parts] { blobs->PartsKept(id, seq, parts); });
  });
  return absl::OkStatus();
}

// ---- their ends ---------------------------------------------------------------------------------

void CoreDriver::OnSessionEnded(WorkerId worker, const proto::SessionEnded& ended) {
  std::lock_guard lock(mutex_);
  const auto id = SessionId::FromBytes(ended.session_id());
  if (!id) return;
  ExecutorGone gone{.session = *id,
                    .why = absl::Status(wire::CodeFromWire(ended.code()), ended.message()),
                    .placement = ended.placement(),
                    .worker = worker,
                    .once_more = ended.one_more_try(),
                    .seq = ended.seq(),
                    .rank = ended.rank()};
  CheckSpoken(worker, *id);
  if (planted_.old_placement) gone.placement = 0;
  Session* const session = Find(*id);
  // One of an earlier placement may come late. It is not to be taken for the cause, even for as
  // long as that waits to be told.
  if (!core_.Concerns(gone)) return;
  // Of several ranks the first is the cause.
  if (session != nullptr && session->ending.has_value() && session->ending->rank != gone.rank &&
      session->ending->report.has_value())
    return;
  const bool streams =
      session != nullptr && session->relay != nullptr && session->relay->has_executor(gone.rank);
  if (!streams) return TellGone(std::move(gone));
  const uint32_t rank = gone.rank;
  session->ending = Session::Ending{host_->Now(), std::move(gone), rank};
}

// An executor that ended its session has said why, and better than how its process ended.
void CoreDriver::TellGone(ExecutorGone gone) {
  const Session* const session = Find(gone.session);
  if (session != nullptr && session->relay != nullptr && !session->relay->failure().ok()) {
    gone.why = session->relay->failure();
    gone.crashed = gone.once_more = false;
  } else {
    gone.crashed = !gone.once_more && (gone.why.ok() || absl::IsUnavailable(gone.why));
  }
  Tell(gone);
}

void CoreDriver::TellOverdueEndings() {
  const MonoTime now = host_->Now();
  std::vector<SessionId> overdue;
  for (const auto& [id, session] : sessions_) {
    const auto& ending = session->ending;
    if (ending.has_value() && now.ns - ending->since.ns > kExecutorWordMs * 1'000'000)
      overdue.push_back(id);
  }
  for (const SessionId& id : overdue) TellEnding(id);
}

void CoreDriver::TellEnding(SessionId id) {
  Session* const session = Find(id);
  if (session == nullptr || !session->ending.has_value()) return;
  const auto ending = std::exchange(session->ending, std::nullopt);
  TellProgress(id, *session);
  TellGone(ending->report.value_or(
      ExecutorGone{.session = id,
                   .why = absl::UnavailableError("the executor's stream ended"),
                   .rank = ending->rank}));
}

}  // namespace outboard::gateway
