// The part of GatewayCore that lets clients find sessions which are not theirs by a token: names,
// the list for an account, entering and ending one by name, and sessions that begin with another
// one's state (forks).
//
// A fork has no session yet, and so takes no device, until it has a snapshot to begin with:
//
//   ClientOpen/BeginFork --CheckFork: the snapshot is new enough--> sharing
//   sharing --SnapshotShared--> a session, in the queue; or, its blobs are gone, waiting
//   waiting --SnapshotKept, Tick/CheckFork--> sharing; or refused: parent or time is at its end
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gateway/core/core.h"
#include "telemetry/counters.h"

namespace outboard::gateway {

namespace {
// Longer than the largest snapshot takes to be stored.
constexpr int64_t kForkWaitNs = 120 * kSecondNs;
}  // namespace

// ---- names --------------------------------------------------------------------------------------

GatewayCore::Session* GatewayCore::Named(TenantId tenant, const std::string& text) {
  const auto id = FindNamed(tenant, text);
  return id.has_value() ? Find(*id) : nullptr;
}

std::optional<SessionId> GatewayCore::FindNamed(TenantId tenant, const std::string& text) const {
  for (const auto& [id, session] : sessions_) {
    if (session.tenant != tenant) continue;
    if ((!session.name.empty() && session.name == text) || id.Hex() == text) return id;
  }
  return std::nullopt;
}

absl::Status GatewayCore::CheckName(TenantId tenant, const std::string& name) const {
  if (name.empty()) return absl::OkStatus();
  const auto in_use = [&](const auto& entry) {
    return entry.second.open.tenant == tenant && entry.second.open.name == name;
  };
  if (!FindNamed(tenant, name) && std::none_of(forks_.begin(), forks_.end(), in_use))
    return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("the account has a session named ", name, ": enter it (Session.attach, ",
                   "CLOUD_ATTACH), end it (`outboard stop ", name, "`), or take another name"));
}

// What the client before sent and nobody has applied is lost with it, as are its answers. What the
// new one sends has the numbers that follow what is applied, so nothing known of items beyond that
// holds any more.
void GatewayCore::Handle(const ClientAttach& event, Out& out) {
  const auto refuse = [&](absl::Status why, telemetry::Refusal reason, bool is_kept = false) {
    telemetry::CountRefused(reason);
    out.push_back(EndClient{.conn = event.conn, .why = std::move(why), .is_kept = is_kept});
  };
  if (draining_)
    return refuse(absl::UnavailableError("the gateway is stopping"),
                  telemetry::Refusal::kStopping);
  Session* const session = Named(event.tenant, event.session);
  if (session == nullptr || session->epoch == 0)
    return refuse(absl::NotFoundError(absl::StrCat(
                      "the account has no session ", event.session,
                      " with state: it was never opened, has ended, or was left alone for too "
                      "long; `outboard ps` lists those there are")),
                  telemetry::Refusal::kNoSession);
  if (absl::Status other = session->request.CheckShape(event.devices, event.mesh, event.spread);
      !other.ok())
    return refuse(std::move(other), telemetry::Refusal::kNoSession);
  if (const auto refused = refused_.find(event.tenant); refused != refused_.end())
    return refuse(refused->second, telemetry::Refusal::kLedger);
  if (WaitsToPay(*session, {event.conn, event.key_id, event.max_cost, event}, out)) return;
  const SessionId id = session->id;
  if (absl::Status why = MayGoOn(id, out); !why.ok())
    return refuse(std::move(why), telemetry::Refusal::kCredit, /*is_kept=*/Find(id) != nullptr);
  if (event.max_cost.has_value()) session->request.max_cost = event.max_cost;
  session->request.queue_max_ns = event.queue_ns;
  session->client.key_id = event.key_id;
  session->client.resume_hash = event.resume_hash;
  session->losses.refused_items.clear();
  session->losses.suspect_seq = 0;
  if (session->replay.active) EndReplay(*session, out);
  session->replay.until_seq = 0;
  session->client.is_new = true;
  Reconnect(*session, event.conn, event.wall, "another client entered the session", out);
}

// As its client would, by its key; or it is lost, and time that nobody has confirmed is not paid.
void GatewayCore::Handle(const EndSession& event, Out& out) {
  if (Find(event.session) == nullptr) return;
  if (event.fault.ok())
    End(event.session, absl::CancelledError("the session was ended by `outboard stop`"),
        SessionRowState::kClosed, LeaseEnd::kClosed, out);
  else
    End(event.session, event.fault, SessionRowState::kLost, LeaseEnd::kGatewayFault, out);
}

std::vector<GatewayCore::Listed> GatewayCore::List(TenantId tenant, MonoTime now) const {
  std::vector<Listed> all;
  for (const auto& [id, session] : sessions_) {
    if (session.tenant != tenant) continue;
    Listed listed{.session = id, .name = session.name};
    listed.state = session.StateText();
    listed.devices = session.request.devices;
    listed.age_ms = std::max<int64_t>(0, now.ns - session.opened_at.ns) / 1'000'000;
    listed.bill = BillOf(id);
    listed.has_client = session.client.is_connected();
    listed.stopped = session.billing.stopped;
    all.push_back(std::move(listed));
  }
  std::stable_sort(all.begin(), all.end(), [](const Listed& a, const Listed& b) {
    return a.age_ms > b.age_ms;
  });
  return all;
}

// ---- left alone ---------------------------------------------------------------------------------

// What has a name is left on purpose, and found again by it.
int64_t GatewayCore::GraceNs(const Session& session) const {
  return !session.name.empty() && session.recoverable ? options_.stopped_grace_ns
                                                      : options_.grace_ns;
}

// A gateway that stops in order: whoever enters the session next can do so at its successor.
bool GatewayCore::MaySurvive(const Session& session) const {
  return !session.name.empty() && session.recoverable && !session.snapshot.root.empty();
}

void GatewayCore::PutToNextGateway(Session& session, Out& out) {
  const SessionId id = session.id;
  ReleaseDevices(session, /*lost=*/false, LeaseEnd::kGatewayStopped, out);
  LeaveQueue(id);
  for (const Seat& seat : std::exchange(session.placement.seats, {}))
    out.push_back(EndExecutor{seat.worker, id});
  PutRow(session, SessionRowState::kDetached, out);
  if (session.client.is_connected()) {
    conns_.erase(session.client.conn);
    out.push_back(EndClient{session.client.conn, id,
                            absl::UnavailableError("the gateway is stopping"), BillOf(id)});
  }
  out.push_back(Forget{id, /*goes_on=*/true});
  sessions_.erase(id);
}

// ---- forks --------------------------------------------------------------------------------------

void GatewayCore::BeginFork(const ClientOpen& event, Out& out) {
  const auto refuse = [&](absl::Status why) {
    telemetry::CountRefused(telemetry::Refusal::kNoSession);
    out.push_back(EndClient{event.conn, std::nullopt, std::move(why), {}});
  };
  const Session& parent = *Named(event.tenant, event.fork_of);  // there is one
  if (!parent.recoverable || !event.recovers)
    return refuse(absl::FailedPreconditionError(
        "the session has no snapshots that another could begin with (`--snapshot-every`)"));
  Fork fork{event, parent.id, now_, "", 0, parent.placement.has_parts};
  fork.open.mesh = parent.request.mesh;
  fork.open.spread = parent.request.spread;
  // What was done by now. What the parent's client sends meanwhile is not waited for.
  fork.open.fork_seq = std::max(event.fork_seq, parent.progress.done_seq);
  if (CheckFork(fork, out)) forks_.emplace(event.conn, std::move(fork));
}

bool GatewayCore::CheckFork(Fork& fork, Out& out) {
  if (!fork.root.empty()) return true;  // it is being shared
  const auto end = [&](absl::Status why) {
    out.push_back(EndClient{fork.open.conn, std::nullopt, std::move(why), {}});
    return false;
  };
  Session* const parent = Find(fork.parent);
  if (parent == nullptr)
    return end(absl::NotFoundError("the session that it was to begin with has ended"));
  if (!parent->snapshot.root.empty() && parent->snapshot.seq >= fork.open.fork_seq) {
    fork.root = parent->snapshot.root;
    fork.seq = parent->snapshot.seq;
    out.push_back(ShareSnapshot{fork.open.conn, fork.open.tenant, fork.open.session, parent->id,
                                parent->request.devices, fork.root});
    return true;
  }
  if (now_.ns - fork.since.ns > kForkWaitNs)
    return end(absl::UnavailableError(
        "the session that it was to begin with stored no snapshot in time"));
  // Every tick again: an answer may be of an executor that is gone.
  if (parent->placement.is_attached() && FirstWorkerOf(*parent).snapshots_when_asked)
    out.push_back(RequestSnapshot{parent->id});
  return true;
}

void GatewayCore::CheckForks(Out& out) {
  for (auto fork = forks_.begin(); fork != forks_.end();)
    fork = CheckFork(fork->second, out) ? std::next(fork) : forks_.erase(fork);
}

bool GatewayCore::DropFork(ConnId conn) { return forks_.erase(conn) > 0; }

void GatewayCore::Handle(const SnapshotShared& event, Out& out) {
  const auto found = forks_.find(event.conn);
  if (found == forks_.end()) return;  // the driver gives back what it protected
  if (absl::IsFailedPrecondition(event.status)) {
    forks_.erase(found);
    out.push_back(EndClient{event.conn, std::nullopt, event.status, {}});
    return;
  }
  if (!event.status.ok()) {
    found->second.root.clear();
    return;  // the next tick finds the later snapshot
  }
  const Fork fork = std::move(found->second);
  forks_.erase(found);
  Session& session = Begin(fork.open);
  session.recoverable = true;
  session.placement.has_parts = fork.has_parts;
  session.snapshot.root = fork.root;
  session.snapshot.seq = session.progress.done_seq = fork.seq;
  Enqueue(session, out);
}

}  // namespace outboard::gateway
