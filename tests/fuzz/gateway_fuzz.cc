// Any order of events in the gateway's core: its invariants hold after each, epochs rise, an ended
// connection is never spoken to again, no second is posted that the clock did not allow, and
// StopAll leaves nothing.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "base/check.h"
#include "gateway/core/core.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/seeds.h"

using namespace outboard;
using namespace outboard::gateway;

namespace {

constexpr int kSessions = 24, kTenants = 2;

class World {
 public:
  explicit World(test::ByteSource bytes) : bytes_(bytes), core_(Options()) {}

  void Play() {
    while (!bytes_.empty()) {
      const int64_t step = int64_t{bytes_.Byte()} * bytes_.Byte() * kSecondNs / 4096;  // up to 16 s
      // Threads that wait for the driver's lock may tell times out of order.
      const bool late = bytes_.OneIn(16);
      const Event event = SomeEvent();
      if (!late) {
        device_ns_max_ += step * core_.devices_busy();
        now_.ns += step;
      }
      Tell(event, MonoTime{late ? now_.ns - step : now_.ns});
    }
    Tell(StopAll{}, now_);
    OB_CHECK(core_.session_count() == 0 && core_.devices_busy() == 0);
    OB_CHECK(posted_ms_ * 1'000'000 <= device_ns_max_);
  }

 private:
  static CoreOptions Options() {
    CoreOptions options;
    options.grace_ns = 40 * kSecondNs;
    options.sessions_per_tenant_max = 8;
    options.queue_max = 6;
    options.snapshot_ns = 30 * kSecondNs;
    return options;
  }

  // The adapter numbers connections, workers and sessions: fresh ones are never known.
  ConnId NewConn() {
    conns_.insert(++last_conn_);
    return ConnId{last_conn_};
  }
  ConnId SomeConn() { return ConnId{1 + bytes_.Byte() % (last_conn_ + 1)}; }
  WorkerId SomeWorker() { return WorkerId{1 + bytes_.Byte() % (last_worker_ + 1)}; }
  SessionId SomeSession() { return SessionId{0, 1ull + bytes_.Below(kSessions)}; }
  TenantId SomeTenant() { return TenantId{1 + bytes_.Below(kTenants)}; }

  Event SomeEvent() {
    // Most are answered, or nothing would ever go live.
    if (!asked_.empty() && !bytes_.OneIn(4)) return SomeAnswer();
    if (!begun_.empty() && bytes_.OneIn(2)) return SomeWritten();
    switch (bytes_.Below(14)) {
      case 0: {
        WorkerJoined join{WorkerId{++last_worker_}, "w", {}, "node", {}};
        join.devices.resize(1u + bytes_.Below(3));
        if (bytes_.OneIn(4)) join.worker_identity = "other";
        join.one_account = bytes_.OneIn(3);
        for (int i = bytes_.Below(3); i > 0; --i)
          join.held.push_back({SomeSession(), {static_cast<uint32_t>(bytes_.Below(3))}, 1});
        return join;
      }
      case 1: {
        WorkerHeartbeat beat{SomeWorker(), {}};
        for (int i = bytes_.Below(4); i > 0; --i) beat.alive.push_back(SomeSession());
        return beat;
      }
      case 2: return WorkerDraining{SomeWorker()};
      case 3: return WorkerGone{SomeWorker()};
      case 4: {
        const uint64_t id = ++last_session_;
        return ClientOpen{NewConn(),    SomeTenant(), 1u + bytes_.OneIn(8), SessionId{0, id},
                          Token{1, id}, WallTime{},   bytes_.OneIn(2)};
      }
      case 5: return ClientResume{NewConn(), SomeTenant(), Token{1, SomeSession().lo}, WallTime{}};
      case 6:
        if (bytes_.OneIn(4)) return ClientDenied{SomeConn(), absl::UnauthenticatedError("revoked")};
        return ClientClosed{SomeConn()};
      case 7: {
        const ConnId conn = SomeConn();
        conns_.erase(conn.value);
        return ClientGone{conn};
      }
      case 8: return ExecutorAttached{SomeSession(), WallTime{}};
      case 9:
        return ExecutorGone{SomeSession(),
                            bytes_.OneIn(2) ? absl::OkStatus() : absl::UnavailableError("signal 9"),
                            bytes_.OneIn(4), static_cast<uint64_t>(bytes_.Below(3))};
      case 10: return SessionProgress{SomeSession(), bytes_.OneIn(2), bytes_.Byte()};
      case 11: return SnapshotKept{SomeSession(), "root", bytes_.Byte()};
      case 12:
        if (bytes_.OneIn(32)) core_.Drain();
        if (bytes_.OneIn(64)) return PostingRefused{SomeTenant(), absl::DataLossError("refused")};
        return Tick{};
      default: return Tick{};
    }
  }

  // Of a hold that was asked for; some are cut short, or refused.
  HoldAnswered SomeAnswer() {
    const auto at =
        asked_.begin() + bytes_.Below(static_cast<int>(std::min<size_t>(asked_.size(), 256)));
    const TakeHold asked = *at;
    asked_.erase(at);
    HoldAnswered answered{asked.request.lease.session, asked.number, {asked.request.to_ms, {}}};
    if (bytes_.OneIn(4)) {
      answered.answer.funded_ms = asked.request.to_ms * bytes_.Byte() / 256;
      answered.answer.why = absl::ResourceExhaustedError("a cap");
    }
    return answered;
  }

  // The disk takes a lease, in order; few are refused.
  Event SomeWritten() {
    const LeaseId lease = begun_.front();
    begun_.pop_front();
    if (bytes_.OneIn(32)) return RowNotWritten{lease.session};
    return LeaseWritten{lease};
  }

  void Tell(const Event& event, MonoTime now) {
    for (const Action& action : core_.On(event, now)) {
      if (const auto* const live = std::get_if<Live>(&action)) {
        OB_CHECK(conns_.contains(live->conn.value));
        OB_CHECK(live->epoch > epochs_[live->session]);
        epochs_[live->session] = live->epoch;
      } else if (const auto* const end = std::get_if<EndClient>(&action)) {
        OB_CHECK(conns_.erase(end->conn.value) == 1);
      } else if (const auto* const queued = std::get_if<Queued>(&action)) {
        OB_CHECK(conns_.contains(queued->conn.value));
      } else if (const auto* const hold = std::get_if<TakeHold>(&action)) {
        OB_CHECK(hold->request.to_ms > 0 && !hold->request.prices_per_hour.empty());
        asked_.push_back(*hold);
      } else if (const auto* const lease = std::get_if<BeginLease>(&action)) {
        begun_.push_back(lease->lease);
      } else if (const auto* const post = std::get_if<Post>(&action)) {
        for (const Charge& charge : post->charges) {
          OB_CHECK(charge.from_ms < charge.to_ms && charge.amount.value >= 0);
          posted_ms_ += charge.to_ms - charge.from_ms;
        }
      }
    }
    const std::string broken = core_.CheckInvariants();
    if (broken.empty()) return;
    std::fprintf(stderr, "%s\n", broken.c_str());
    OB_CHECK(broken.empty());
  }

  test::ByteSource bytes_;
  GatewayCore core_;
  MonoTime now_;
  uint64_t last_conn_ = 0, last_worker_ = 0, last_session_ = 0;
  std::vector<TakeHold> asked_;
  std::deque<LeaseId> begun_;
  std::set<uint64_t> conns_;  // of which no end was told
  std::map<SessionId, uint64_t> epochs_;
  int64_t posted_ms_ = 0, device_ns_max_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  // After a second each: a worker joins, a client opens, its executor attaches, it closes.
  const std::string second{64, 64, 0};  // 64 * 64 / 4096, in time
  test::WriteSeeds(*argc, *argv,
                   {second + std::string{0, 0, 0} + second + std::string{4, 0, 0} + second +
                    std::string{8, 0} + second + std::string{6, 0}});
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World(test::ByteSource(data, size)).Play();
  return 0;
}
