// The part of GatewayCore that gives a device back while its client is connected: a session sleeps
// when it has had no work for a while, and wakes with its client's next item. Its values stay with
// its executor, and go to disk when that takes too long.
#include <algorithm>
#include <utility>

#include "gateway/core/core.h"

namespace outboard::gateway {

namespace {
// A session is found idle, and its lease ended, a tick late each: nobody is billed for more idle
// time than is shown.
constexpr int64_t kTicksNs = kSecondNs / 2;
}  // namespace

// Idle is what the device does: a client that is connected, and uploads or thinks, has no use of
// it.
void GatewayCore::CheckSleep(Session& session, Out& out) {
  if (options_.sleep_ns == 0 || !session.lease.is_written) return;  // its client has yet to be told
  const int64_t idle_ns = now_.ns - session.progress.idle_since.ns;
  const int64_t left_ns = options_.sleep_ns - kTicksNs - idle_ns;
  // What cannot go to disk would keep its memory for as long as it slept, or its process the
  // device.
  const bool may_sleep = session.recoverable;
  if (session.progress.busy || session.progress.awaits_answer || left_ns > options_.sleep_lead_ns ||
      !may_sleep) {
    session.client.sleep_announced = false;
    session.snapshot.awaited_since.reset();
    return;
  }
  if (!std::exchange(session.client.sleep_announced, true))
    out.push_back(IdleSoon{session.client.conn, idle_ns / kSecondNs,
                           std::max<int64_t>(1, (left_ns + kTicksNs) / kSecondNs)});
  if (left_ns < 0) Sleep(session, out);
}

void GatewayCore::Sleep(Session& session, Out& out) {
  const int64_t idle_s = (now_.ns - session.progress.idle_since.ns) / kSecondNs;
  const bool exclusive = IsExclusive(session);
  if (exclusive) {
    AskForSnapshot(session, out);
    if (!IsReadyToGo(session)) return;  // the next tick comes here again
  }
  ReleaseDevices(session, /*lost=*/false, LeaseEnd::kIdle, out);
  session.client.asleep = true;
  session.client.left_at = session.state_since = now_;
  session.snapshot.awaited_since.reset();
  session.state = State::kParked;
  const MicroUsd each =
      exclusive ? session.billing.prices->idle.stored : session.billing.prices->idle.parked;
  const MicroUsd asleep{each.value * session.request.devices};
  out.push_back(SleepBegins{session.client.conn, session.id, idle_s, asleep});
  if (exclusive) {
    PutAway(session, /*ours=*/false, out);
  } else {
    PutRow(session, SessionRowState::kDetached, out);
    AskForSnapshot(session, out);
  }
  PlaceQueue(out);
}

void GatewayCore::Handle(const ClientActs& event, Out& out) {
  Session* const session = FindByConn(event.conn);
  if (session != nullptr && session->client.asleep) Wake(*session, out);
}

void GatewayCore::Wake(Session& session, Out& out) {
  session.client.asleep = false;
  if (session.state == State::kOrphaned) return;  // it is in the queue once that is over
  session.state_since = now_;
  if (session.state == State::kStored) session.state = State::kQueued;
  PutRow(session, SessionRowState::kOpen, out);
  Enqueue(session, out);
}

// What is parked and waits for nothing; its memory is wanted sooner or later.
void GatewayCore::CheckDisk(Session& session, Out& out) {
  if (!session.recoverable || now_.ns - session.state_since.ns <= options_.disk_after_ns) return;
  AskForSnapshot(session, out);
  if (session.is_saved()) PutAway(session, /*ours=*/false, out);
}

}  // namespace outboard::gateway
