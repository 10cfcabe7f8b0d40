#include "tests/nodes/enrol_storm.h"

#include <grpcpp/security/auth_context.h>
#include <grpcpp/support/string_ref.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/growing_pause.h"
#include "gateway/core/core.h"
#include "gateway/nodes/node_enrolment.h"
#include "gateway/nodes/node_words.h"
#include "gateway/tls/worker_admission.h"
#include "wire/tls/authority.h"

namespace outboard::test {
namespace {

using namespace gateway;  // NOLINT: of the test's own file

constexpr WallTime kPowerOn{1'764'000'000'000};
constexpr double kBootS = 6, kBootJitterS = 3;   // firmware, kernel, worker
constexpr double kJoinTestS = 2;
constexpr double kEnrolS = 0.025;  // of the gateway's, one after another: as on a slow disk
constexpr double kAnswerLost = 0.02;             // of those that were let in
constexpr double kHourS = 3600;
constexpr int kSessionsPerTenant = 50;           // fewer than the core allows
constexpr int64_t kLifetimeS = 24 * 3600;

// A caller of the fleet port, with a certificate or without.
class Caller final : public grpc::AuthContext {
 public:
  explicit Caller(std::string pem) : pem_(std::move(pem)) {}
  std::vector<grpc::string_ref> FindPropertyValues(const std::string& name) const override {
    if (name == "transport_security_type") return {"ssl"};
    if (name == "x509_pem_cert" && !pem_.empty()) return {pem_};
    return {};
  }
  bool IsPeerAuthenticated() const override { return !pem_.empty(); }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {}; }
  std::string GetPeerIdentityPropertyName() const override { return ""; }
  grpc::AuthPropertyIterator begin() const override { return Nothing(); }
  grpc::AuthPropertyIterator end() const override { return Nothing(); }
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override { return false; }

 private:
  struct Nothing : grpc::AuthPropertyIterator {};
  const std::string pem_;
};

struct Machine {
  std::string serial, address, claim, request;
  bool is_impostor = false;
  // A worker that is not let in ends, and process 1 starts it again (worker/init/worker_keeper.h).
  GrowingPause pause;
  std::unique_ptr<WorkerAdmission::Watched> watched;  // while it is joined
};

class Simulation {
 public:
  explicit Simulation(const EnrolStorm& storm) : storm_(storm), random_(storm.seed) {}

  absl::StatusOr<EnrolStormResult> Run() {
    const auto begin = std::chrono::steady_clock::now();
    OB_RETURN_IF_ERROR(Prepare());
    while (result_.serving < storm_.machines && !events_.empty() && broken_.ok()) {
      const Event event = events_.top();
      events_.pop();
      now_s_ = event.at_s;
      if (now_s_ > kHourS)
        return absl::DeadlineExceededError(absl::StrCat(
            "after an hour ", result_.serving, " of ", storm_.machines, " sessions are served"));
      event.what();
    }
    OB_RETURN_IF_ERROR(broken_);
    result_.virtual_s = now_s_;
    for (const auto& [serial, count] : joined_) result_.twice += count > 1;
    for (const auto& [worker, count] : sessions_of_) result_.twice += count > 1;
    result_.real_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result_;
  }

 private:
  struct Event {
    double at_s;
    uint64_t order;
    std::function<void()> what;
    bool operator<(const Event& other) const {
      return std::tie(at_s, order) > std::tie(other.at_s, other.order);
    }
  };
  void After(double seconds, std::function<void()> what) {
    events_.push({now_s_ + seconds, ++order_, std::move(what)});
  }
  double Random() { return std::uniform_real_distribution<>(0, 1)(random_); }
  MonoTime Mono() const { return {static_cast<int64_t>(now_s_ * 1e9)}; }
  WallTime Wall() const { return {kPowerOn.unix_ms + static_cast<int64_t>(now_s_ * 1e3)}; }

  absl::Status Prepare() {
    OB_ASSIGN_OR_RETURN(tls::Authority authority, tls::Authority::Generate("a test's CA"));
    OB_ASSIGN_OR_RETURN(admission_,
                        WorkerAdmission::Start(storm_.folder, std::move(authority), kLifetimeS));
    OB_ASSIGN_OR_RETURN(auto registry, NodeRegistry::Open(storm_.folder + "/accounts.db"));
    NodeRegistry& rows = *registry;
    for (int i = 0; i < storm_.machines; ++i) OB_RETURN_IF_ERROR(Add(rows, i, false));
    for (int i = 0; i < storm_.impostors; ++i) OB_RETURN_IF_ERROR(Add(rows, i, true));
    OB_ASSIGN_OR_RETURN(auto tpms, NodeTpms::Open(storm_.folder + "/accounts.db"));
    enrolment_ = std::make_unique<NodeEnrolment>(std::move(registry), std::move(tpms),
                                                 admission_.get());
    for (int i = 0; i < storm_.machines; ++i) {
      const auto number = static_cast<uint64_t>(i + 1);
      Tell(ClientOpen{ConnId{number}, TenantId{1 + i / kSessionsPerTenant}, 1, SessionId{0, number},
                      Token{1, number}, kPowerOn});
    }
    for (Machine& machine : machines_)
      After(kBootS + kBootJitterS * Random(), [this, &machine] { Ask(machine); });
    Beat();
    return absl::OkStatus();
  }

  // Every second machine is expected, and the others have a claim.
  absl::Status Add(NodeRegistry& registry, int number, bool is_impostor) {
    const std::string serial = absl::StrCat("shelf-", number);
    const auto random = [this] { return static_cast<uint32_t>(random_()); };
    Machine machine{.serial = serial,
                    .address = storm_.behind_one_address
                                   ? "ipv4:10.0.0.1:1"
                                   : absl::StrCat("ipv4:10.", is_impostor, ".", number / 250, ".",
                                                  number % 250 + 1, ":1"),
                    .claim = {},
                    .request = {},
                    .is_impostor = is_impostor,
                    .pause = {1, 60, random},
                    .watched = nullptr};
    OB_ASSIGN_OR_RETURN(const tls::PrivateKey key, tls::PrivateKey::Generate());
    OB_ASSIGN_OR_RETURN(machine.request, tls::MakeRequest(key));
    if (number % 2 == 0 && !is_impostor) OB_RETURN_IF_ERROR(registry.Expect(serial, kPowerOn));
    if (number % 2 == 1) {
      if (is_impostor) {  // it has read the claim of the machine that it says it is
        machine.claim = claims_[serial];
      } else {
        OB_ASSIGN_OR_RETURN(const Secret claim, registry.MakeClaim(serial, kPowerOn));
        machine.claim = claims_[serial] = std::string(claim.Reveal());
      }
    }
    machines_.push_back(std::move(machine));
    return absl::OkStatus();
  }

  // The gateway takes one question after another.
  void Ask(Machine& machine) {
    free_at_s_ = std::max(free_at_s_, now_s_) + kEnrolS;
    After(free_at_s_ - now_s_, [this, &machine] { Answer(machine); });
  }

  void Answer(Machine& machine) {
    ++result_.asks;
    proto::EnrolNodeRequest request;
    request.set_certificate_request(machine.request);
    request.mutable_facts()->set_serial(machine.serial);
    request.mutable_facts()->add_mac("52:54:00:12:34:56");
    request.set_claim(machine.claim);
    const auto answer =
        enrolment_->Enrol(Caller(""), request, machine.address, {.wall = Wall(), .mono = Mono()});
    if (!answer.ok()) {
      result_.too_often += NodeWord(std::string(answer.status().message())) == kAsksTooOften;
    }
    if (!answer.ok() || Random() < kAnswerLost) {
      After(machine.pause.Next(), [this, &machine] { Ask(machine); });
      return;
    }
    const std::string pem = answer->chain.front().ToPem();
    After(0.01, [this, &machine, pem] { Join(machine, pem); });
  }

  void Join(Machine& machine, const std::string& pem) {
    const Caller caller(pem);
    if (!admission_->Check(caller).ok() || admission_->NodeOf(caller) != machine.serial) {
      broken_ = absl::InternalError("a machine that was let in may not join");
      return;
    }
    machine.watched = admission_->Watch(caller, [] {});
    ++joined_[machine.serial];
    const WorkerId worker{++workers_};
    After(kJoinTestS, [this, &machine, worker] {
      Tell(WorkerJoined{worker, machine.serial, std::vector<DeviceSlot>(1), machine.serial, {}});
    });
  }

  // Nobody is lost while the storm goes on.
  void Beat() {
    for (uint64_t worker = 1; worker <= workers_; ++worker) {
      WorkerHeartbeat beat{WorkerId{worker}, {}};
      if (const auto at = session_on_.find(worker); at != session_on_.end())
        beat.alive.push_back(at->second);
      Tell(beat);
    }
    Tell(Tick{});
    After(1, [this] { Beat(); });
  }

  void Tell(const gateway::Event& event) {
    std::deque<gateway::Event> events{event};
    while (!events.empty()) {
      const auto actions = core_.On(events.front(), Mono());
      events.pop_front();
      for (const Action& action : actions) {
        if (const auto* hold = std::get_if<TakeHold>(&action))
          events.push_back(HoldAnswered{
              hold->request.lease.session, hold->number, {hold->request.to_ms, absl::OkStatus()}});
        if (const auto* assign = std::get_if<Assign>(&action)) {
          ++sessions_of_[assign->worker.value];
          session_on_[assign->worker.value] = assign->session;
          events.push_back(ExecutorAttached{assign->session, Wall()});
        }
        if (std::get_if<Live>(&action) != nullptr) ++result_.serving;
      }
    }
    // Of all sessions: not after each of ten thousand events.
    if (++told_ % 256 != 0 && result_.serving < storm_.machines) return;
    if (const std::string broken = core_.CheckInvariants(); !broken.empty())
      broken_ = absl::InternalError(broken);
  }

  const EnrolStorm storm_;
  std::mt19937 random_;
  double now_s_ = 0, free_at_s_ = 0;
  uint64_t order_ = 0, workers_ = 0, told_ = 0;
  std::priority_queue<Event> events_;
  std::unique_ptr<WorkerAdmission> admission_;  // outlives the machines, which it watches
  std::unique_ptr<NodeEnrolment> enrolment_;
  std::map<std::string, std::string> claims_;
  std::deque<Machine> machines_;
  GatewayCore core_{[] {
    CoreOptions options;
    options.sleep_ns = 0;  // sessions do nothing here
    return options;
  }()};
  std::map<std::string, int> joined_;
  std::map<uint64_t, int> sessions_of_;
  std::map<uint64_t, SessionId> session_on_;
  EnrolStormResult result_;
  absl::Status broken_;
};

}  // namespace

absl::StatusOr<EnrolStormResult> RunEnrolStorm(const EnrolStorm& storm) {
  return Simulation(storm).Run();
}

}  // namespace outboard::test
