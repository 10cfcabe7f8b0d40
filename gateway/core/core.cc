// Invariants (CheckInvariants; tests quote the numbers)
//   G1  A device is held by at most one session, and that session names it.
//   G2  A session holds devices exactly in kStarting, kLive and kDetached, all of one worker that
//       is known.
//   G3  A session is metered exactly in kLive and kDetached: never before the customer can use the
//       device, never after.
//   G4  A connection belongs to at most one session; kLive has one, kDetached and a kParked outside
//       the queue none.
//   G5  The queue holds exactly the sessions in kQueued and those in kParked that have a
//       connection.
//   G6  An epoch rises with every Live of a session.
//   G7  Nothing waits for ever: each state but kLive has a time limit, checked on Tick.
//
//   ClientOpen --Enqueue--> kQueued --TryPlace--> kStarting --ExecutorAttached/GoLive--> kLive
//   kLive --ClientGone/GoDetached--> kDetached --ClientResume/GoLive--> kLive
//   kDetached --idle/Park--> kParked --ClientResume/Enqueue, TryPlace--> kLive
//   any --ClientClosed, ExecutorGone, WorkerGone, a time limit/End--> gone
#include "gateway/core/core.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {

namespace {

int64_t Since(MonoTime now, MonoTime then) { return now.ns - then.ns; }
bool IsSome(ConnId conn) { return conn.value != 0; }

// What the customer has lost, and what it costs (docs/when-it-breaks.md).
absl::Status WorkerLost(std::string_view how) {
  return absl::UnavailableError(
      absl::StrCat("worker lost: ", std::string(how),
                   "; the session's values are gone, and the time since the worker was last heard "
                   "from is not billed"));
}

}  // namespace

uint32_t GatewayCore::Worker::free() const {
  if (draining) return 0;
  return static_cast<uint32_t>(std::count(devices.begin(), devices.end(), std::nullopt));
}

GatewayCore::GatewayCore(CoreOptions options)
    : options_(options), meter_(MeterOptions{.unheard_max_ns = options.lease_ttl_ns}) {}

std::vector<Action> GatewayCore::On(const Event& event, MonoTime now) {
  now_ = std::max(now_, now);
  Out out;
  std::visit([&](const auto& e) { Handle(e, out); }, event);
  return out;
}

// ---- workers ------------------------------------------------------------------------------------

void GatewayCore::Handle(const WorkerJoined& event, Out& out) {
  Worker& worker = workers_[event.worker];
  worker.name = event.name;
  worker.devices.assign(event.devices, std::nullopt);
  worker.heard = now_;
  PlaceQueue(out);
}

void GatewayCore::Handle(const WorkerHeartbeat& event, Out& out) {
  auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  it->second.heard = now_;
  std::vector<Charge> charges;
  for (const SessionId& id : event.alive) {
    Session* session = Find(id);
    if (session == nullptr || !session->metered || session->worker != event.worker) continue;
    for (uint32_t i = 0; i < session->devices.size(); ++i) {
      auto more = meter_.Confirm({{id, session->grant}, i}, now_);
      if (more.ok()) Charged(*session, *more, charges);
    }
  }
  PostCharges(std::move(charges), out);
}

void GatewayCore::Handle(const WorkerDraining& event, Out& out) {
  auto it = workers_.find(event.worker);
  if (it != workers_.end()) it->second.draining = true;
}

void GatewayCore::Handle(const WorkerGone& event, Out& out) {
  LoseWorker(event.worker, "its connection ended", out);
}

void GatewayCore::LoseWorker(WorkerId id, const std::string& why, Out& out) {
  auto it = workers_.find(id);
  if (it == workers_.end()) return;
  std::string name = it->second.name;
  it->second.draining = true;  // what its sessions give back must not be given to those who wait
  std::vector<SessionId> lost;
  for (const auto& [session_id, session] : sessions_) {
    if (session.worker == id) lost.push_back(session_id);
  }
  for (const SessionId& session_id : lost) {
    End(session_id, WorkerLost(absl::StrCat(name, " (", why, ")")), RowState::kLost, "worker lost",
        out);
  }
  workers_.erase(id);
}

// ---- clients ------------------------------------------------------------------------------------

void GatewayCore::Handle(const ClientOpen& event, Out& out) {
  auto refuse = [&](absl::Status why) {
    out.push_back(EndClient{event.conn, std::nullopt, std::move(why), {}});
  };
  if (draining_) return refuse(absl::UnavailableError("the gateway is stopping"));
  if (event.devices > 1) {
    return refuse(absl::UnimplementedError(
        absl::StrCat("devices = ", event.devices, ": this version gives one")));
  }
  auto of_tenant = std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second.tenant == event.tenant;
  });
  if (of_tenant >= options_.sessions_per_tenant_max) {
    return refuse(absl::ResourceExhaustedError(absl::StrCat(
        "this account has ", of_tenant, " sessions; limit ", options_.sessions_per_tenant_max)));
  }
  Session& session = sessions_[event.session];
  session.id = event.session;
  session.tenant = event.tenant;
  session.resume_token = event.resume_token;
  session.attach_token = event.attach_token;
  session.conn = event.conn;
  session.wall = event.wall;
  session.since = now_;
  conns_[event.conn] = event.session;
  if (!TryPlace(session, out)) Enqueue(session, out);
}

void GatewayCore::Handle(const ClientResume& event, Out& out) {
  auto refuse = [&](absl::Status why) {
    out.push_back(EndClient{event.conn, std::nullopt, std::move(why), {}});
  };
  if (draining_) return refuse(absl::UnavailableError("the gateway is stopping"));
  Session* session = nullptr;
  for (auto& [id, candidate] : sessions_) {
    if (candidate.resume_token == event.resume_token && candidate.tenant == event.tenant)
      session = &candidate;
  }
  if (session == nullptr || session->state == State::kQueued ||
      session->state == State::kStarting) {
    return refuse(absl::NotFoundError(
        "no such session: it was closed, its worker was lost, the gateway was started again, or it "
        "was left alone for too long"));
  }
  if (IsSome(session->conn)) {
    // The client noticed the broken connection before we did, or has two: the last one counts.
    ConnId old = session->conn;
    conns_.erase(old);
    out.push_back(
        EndClient{old, std::nullopt, absl::AbortedError("the session was resumed elsewhere"), {}});
  }
  session->conn = event.conn;
  session->wall = event.wall;
  conns_[event.conn] = session->id;
  if (session->state != State::kParked) return GoLive(*session, out);
  std::erase(queue_, session->id);
  session->since = now_;
  if (!TryPlace(*session, out)) Enqueue(*session, out);
}

void GatewayCore::Handle(const ClientClosed& event, Out& out) {
  Session* session = FindByConn(event.conn);
  if (session == nullptr) return;
  End(session->id, event.why, RowState::kClosed, event.why.ok() ? "closed" : "refused", out);
}

void GatewayCore::Handle(const ClientGone& event, Out& out) {
  Session* session = FindByConn(event.conn);
  if (session == nullptr) return;
  conns_.erase(event.conn);
  session->conn = {};
  switch (session->state) {
    case State::kQueued:
    case State::kStarting:
      // Nothing was opened that a client could come back for.
      End(session->id, absl::CancelledError("the client went away"), RowState::kClosed, "closed",
          out);
      break;
    case State::kLive: GoDetached(*session, out); break;
    case State::kParked:
      std::erase(queue_, session->id);
      session->since = now_;
      break;
    case State::kDetached: break;
  }
}

// ---- executors ----------------------------------------------------------------------------------

bool GatewayCore::CheckAttach(const SessionId& id, const Token& token) const {
  auto it = sessions_.find(id);
  return it != sessions_.end() && it->second.state == State::kStarting && !it->second.attached &&
         it->second.attach_token == token;
}

std::optional<TenantId> GatewayCore::TenantOf(const SessionId& id, const Token& token) const {
  auto it = sessions_.find(id);
  if (it == sessions_.end() || it->second.attach_token != token) return std::nullopt;
  return it->second.tenant;
}

void GatewayCore::Handle(const ExecutorAttached& event, Out& out) {
  Session* session = Find(event.session);
  if (session == nullptr || session->state != State::kStarting) return;
  session->attached = true;
  session->wall = event.wall;
  StartLease(*session, out);
  GoLive(*session, out);
}

void GatewayCore::Handle(const ExecutorGone& event, Out& out) {
  Session* session = Find(event.session);
  if (session == nullptr) return;
  absl::Status why = event.why;
  if (why.ok()) {
    why = WorkerLost("the executor ended");
  } else if (absl::IsUnavailable(why)) {
    const std::string how(why.message().data(), why.message().size());
    why = WorkerLost(how);
  }
  End(session->id, why, RowState::kLost, "executor lost", out);
}

void GatewayCore::Handle(const Progress& event, Out& out) {
  Session* session = Find(event.session);
  if (session == nullptr) return;
  if (event.busy || session->busy) session->idle_since = now_;
  session->busy = event.busy;
}

// ---- time ---------------------------------------------------------------------------------------

void GatewayCore::Handle(const Tick&, Out& out) {
  std::vector<WorkerId> unheard;
  for (const auto& [id, worker] : workers_) {
    if (Since(now_, worker.heard) > options_.lease_ttl_ns) unheard.push_back(id);
  }
  for (WorkerId id : unheard) LoseWorker(id, "no heartbeat", out);

  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const SessionId& id : ids) {
    Session& session = sessions_.at(id);
    int64_t in_state = Since(now_, session.since);
    bool queued = session.state == State::kQueued ||
                  (session.state == State::kParked && IsSome(session.conn));
    if (queued && in_state > options_.queue_ns) {
      End(id, NoDevice(session), RowState::kClosed, "no device", out);
    } else if (session.state == State::kStarting && in_state > options_.start_ns) {
      End(id, WorkerLost("it started no executor in time"), RowState::kLost, "not started", out);
    } else if (session.state == State::kDetached && !session.busy &&
               Since(now_, session.idle_since) > options_.idle_ns) {
      Park(session, out);
    } else if (session.state == State::kParked && !queued && in_state > options_.grace_ns) {
      End(id, absl::CancelledError("the client did not come back"), RowState::kClosed, "idle", out);
    } else if (session.state == State::kDetached && in_state > options_.grace_ns) {
      End(id, absl::CancelledError("the client did not come back"), RowState::kClosed, "abandoned",
          out);
    }
  }
  PlaceQueue(out);
}

void GatewayCore::Handle(const StopAll&, Out& out) {
  draining_ = true;
  std::vector<SessionId> ids;
  for (const auto& [id, session] : sessions_) ids.push_back(id);
  for (const SessionId& id : ids) {
    End(id, absl::UnavailableError("the gateway is stopping"), RowState::kClosed, "gateway stopped",
        out);
  }
}

// ---- placement ----------------------------------------------------------------------------------

void GatewayCore::Enqueue(Session& session, Out& out) {
  if (queue_.size() >= options_.queue_max) {
    End(session.id, NoDevice(session), RowState::kClosed, "no device", out);
    return;
  }
  out.push_back(Queued{session.conn, queue_.size()});
  queue_.push_back(session.id);
}

void GatewayCore::PlaceQueue(Out& out) {
  if (draining_) return;
  std::deque<SessionId> waiting;
  waiting.swap(queue_);
  for (const SessionId& id : waiting) {
    Session* session = Find(id);
    if (session != nullptr && !TryPlace(*session, out)) queue_.push_back(id);
  }
}

// First fit in the order in which the workers joined; a parked session can only go back to where
// its state is.
bool GatewayCore::TryPlace(Session& session, Out& out) {
  for (auto& [id, worker] : workers_) {
    bool parked_here = session.state == State::kParked && session.worker == id;
    if (session.state == State::kParked && !parked_here) continue;
    if (worker.free() < session.devices_wanted) continue;
    for (uint32_t i = 0;
         i < worker.devices.size() && session.devices.size() < session.devices_wanted; ++i) {
      if (worker.devices[i].has_value()) continue;
      worker.devices[i] = session.id;
      session.devices.push_back(i);
    }
    session.worker = id;
    session.since = now_;
    ++session.grant;
    if (parked_here) {
      StartLease(session, out);
      GoLive(session, out);
    } else {
      session.state = State::kStarting;
      out.push_back(Assign{id, session.id, session.tenant, session.attach_token, session.grant,
                           session.devices});
    }
    return true;
  }
  return false;
}

void GatewayCore::GoLive(Session& session, Out& out) {
  session.state = State::kLive;
  session.since = now_;
  ++session.epoch;
  out.push_back(
      WriteSession{session.id, session.tenant, session.epoch, *session.worker, RowState::kOpen});
  out.push_back(Live{session.conn, session.id, session.tenant, session.resume_token, session.epoch,
                     *session.worker, session.devices});
}

void GatewayCore::GoDetached(Session& session, Out& out) {
  session.state = State::kDetached;
  session.since = session.idle_since = now_;
  out.push_back(Detach{session.id});
  out.push_back(WriteSession{session.id, session.tenant, session.epoch, *session.worker,
                             RowState::kDetached});
}

void GatewayCore::Park(Session& session, Out& out) {
  StopLease(session, /*lost=*/false, "idle", out);
  session.state = State::kParked;  // since stays: the grace time counts from the client's going
  PlaceQueue(out);
}

void GatewayCore::End(const SessionId& id, absl::Status why, RowState row,
                      const std::string& lease_end, Out& out) {
  Session& session = sessions_.at(id);
  StopLease(session, /*lost=*/row == RowState::kLost, lease_end, out);
  Bill bill = BillOf(id);
  std::erase(queue_, id);
  if (session.worker.has_value()) {
    out.push_back(EndExecutor{*session.worker, id});
    if (session.epoch > 0) {
      out.push_back(WriteSession{id, session.tenant, session.epoch, *session.worker, row});
    }
  }
  if (IsSome(session.conn)) {
    conns_.erase(session.conn);
    out.push_back(EndClient{session.conn, id, std::move(why), bill});
  }
  out.push_back(Forget{id});
  sessions_.erase(id);
  PlaceQueue(out);
}

absl::Status GatewayCore::NoDevice(const Session& session) const {
  if (workers_.empty()) return absl::UnavailableError("no worker has joined this gateway");
  return absl::ResourceExhaustedError(absl::StrCat("no device is free: ", devices_busy(), " of ",
                                                   devices_total(), " are in use, ", queue_.size(),
                                                   " sessions wait"));
}

// ---- leases and money ---------------------------------------------------------------------------

void GatewayCore::StartLease(Session& session, Out& out) {
  LeaseId lease{session.id, session.grant};
  for (uint32_t i = 0; i < session.devices.size(); ++i) {
    // Cannot fail for a fresh grant but for the meter's own limit; then the session is not billed,
    // which is our loss.
    meter_.Grant({{lease, i}, session.tenant, options_.price_per_hour, session.wall}, now_)
        .IgnoreError();
  }
  session.metered = true;
  out.push_back(WriteLease{lease, session.tenant, static_cast<uint32_t>(session.devices.size()),
                           *session.worker, ""});
}

void GatewayCore::StopLease(Session& session, bool lost, const std::string& why, Out& out) {
  if (session.worker.has_value()) {
    if (auto it = workers_.find(*session.worker); it != workers_.end()) {
      for (uint32_t i : session.devices) it->second.devices[i] = std::nullopt;
    }
  }
  if (session.metered) {
    LeaseId lease{session.id, session.grant};
    std::vector<Charge> charges;
    for (uint32_t i = 0; i < session.devices.size(); ++i) {
      LeasedDevice device{lease, i};
      auto more = lost ? meter_.Lose(device) : meter_.Release(device, now_);
      if (more.ok()) Charged(session, *more, charges);
    }
    session.past = session.charged;
    PostCharges(std::move(charges), out);
    out.push_back(WriteLease{lease, session.tenant, static_cast<uint32_t>(session.devices.size()),
                             *session.worker, why});
    session.metered = false;
  }
  session.devices.clear();
}

void GatewayCore::Charged(Session& session, const std::vector<Charge>& more,
                          std::vector<Charge>& all) {
  for (const Charge& charge : more) {
    session.charged.seconds += charge.to_s - charge.from_s;
    session.charged.amount.value += charge.amount.value;
    all.push_back(charge);
  }
}

void GatewayCore::PostCharges(std::vector<Charge> charges, Out& out) {
  if (!charges.empty()) out.push_back(Post{std::move(charges)});
}

Bill GatewayCore::BillOf(const SessionId& id) const {
  auto it = sessions_.find(id);
  if (it == sessions_.end()) return {};
  Bill bill = it->second.past;
  if (it->second.metered) {
    Meter::Reading reading = meter_.Read(LeaseId{id, it->second.grant});
    bill.seconds += reading.seconds;
    bill.amount.value += reading.amount.value;
  }
  return bill;
}

// ---- looking ------------------------------------------------------------------------------------

GatewayCore::Session* GatewayCore::Find(const SessionId& id) {
  auto it = sessions_.find(id);
  return it == sessions_.end() ? nullptr : &it->second;
}

GatewayCore::Session* GatewayCore::FindByConn(ConnId conn) {
  auto it = conns_.find(conn);
  return it == conns_.end() ? nullptr : Find(it->second);
}

uint32_t GatewayCore::devices_total() const {
  uint32_t total = 0;
  for (const auto& [id, worker] : workers_) total += static_cast<uint32_t>(worker.devices.size());
  return total;
}

uint32_t GatewayCore::devices_busy() const {
  uint32_t busy = 0;
  for (const auto& [id, worker] : workers_) {
    for (const auto& holder : worker.devices) busy += holder.has_value();
  }
  return busy;
}

std::string GatewayCore::CheckInvariants() const {
  std::set<SessionId> queued(queue_.begin(), queue_.end());
  size_t held = 0;
  for (const auto& [id, s] : sessions_) {
    bool holds =
        s.state == State::kStarting || s.state == State::kLive || s.state == State::kDetached;
    if (holds != !s.devices.empty()) return "G2: devices of " + id.Hex();
    if (holds && !workers_.contains(*s.worker)) return "G2: worker of " + id.Hex();
    for (uint32_t i : s.devices) {
      if (workers_.at(*s.worker).devices.at(i) != id) return "G1: device of " + id.Hex();
    }
    held += s.devices.size();
    if (s.metered != (s.state == State::kLive || s.state == State::kDetached))
      return "G3: " + id.Hex();
    bool has_conn = IsSome(s.conn);
    if (s.state == State::kLive && !has_conn) return "G4: live without connection " + id.Hex();
    if (s.state == State::kDetached && has_conn) return "G4: detached with connection " + id.Hex();
    if (has_conn && (!conns_.contains(s.conn) || conns_.at(s.conn) != id)) return "G4: " + id.Hex();
    bool waits = s.state == State::kQueued || (s.state == State::kParked && has_conn);
    if (waits != queued.contains(id)) return "G5: " + id.Hex();
  }
  if (held != devices_busy()) return "G1: a device is held by nobody";
  if (queued.size() != queue_.size()) return "G5: twice in the queue";
  return "";
}

}  // namespace outboard::gateway
