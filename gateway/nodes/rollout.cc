#include "gateway/nodes/rollout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::gateway {
namespace {

using Kind = RolloutAction::Kind;
using State = RolloutNodeState;

// One that was told often enough needs hands.
bool IsUnderWay(const RolloutNode& node) {
  return node.state == State::kUpdating ||
         (node.state == State::kReturning && node.tries < kReturnTriesMax);
}

bool IsAnyUnderWay(const Rollout& rollout) {
  return std::any_of(rollout.by_serial.begin(), rollout.by_serial.end(),
                     [](const auto& entry) { return IsUnderWay(entry.second); });
}

class Stepping {
 public:
  Stepping(Rollout& rollout, const std::map<std::string, NodeSeen>& seen, WallTime now)
      : rollout_(rollout), seen_(seen), now_(now) {}

  std::vector<RolloutAction> Run() {
    for (auto& [serial, node] : rollout_.by_serial) {
      if (node.state == State::kUpdating) LookAtUpdating(serial, node);
      if (node.state == State::kReturning) LookAtReturning(serial, node);
    }
    if (rollout_.state == RolloutState::kRunning) Begin();
    if (rollout_.state == RolloutState::kRollingBack) Return();
    return std::move(actions_);
  }

 private:
  const NodeSeen& Seen(const std::string& serial) const {
    static const NodeSeen nothing;
    const auto at = seen_.find(serial);
    return at == seen_.end() ? nothing : at->second;
  }
  int Count(State state) const {
    return static_cast<int>(
        std::count_if(rollout_.by_serial.begin(), rollout_.by_serial.end(),
                      [&](const auto& entry) { return entry.second.state == state; }));
  }
  int Room() const {  // U1
    const auto all = static_cast<int>(rollout_.by_serial.size());
    const int share = std::max(1, all * rollout_.share_percent / 100);
    return share - static_cast<int>(std::count_if(
                       rollout_.by_serial.begin(), rollout_.by_serial.end(),
                       [](const auto& entry) { return IsUnderWay(entry.second); }));
  }
  bool IsLate(const RolloutNode& node) const {
    return now_.unix_ms - node.since.unix_ms >= rollout_.within_ms;
  }
  // U6
  bool IsLateOnItsWay(const RolloutNode& node) const {
    const int64_t patience_ms =
        node.signs == 0 ? rollout_.within_ms : rollout_.within_ms << (node.tries + 1);
    return now_.unix_ms - node.since.unix_ms >= patience_ms;
  }
  void Enter(RolloutNode& node, State state) {
    node.state = state;
    node.since = now_;
    node.signs = 0;
  }

  void LookAtUpdating(const std::string& serial, RolloutNode& node) {
    const NodeSeen& seen = Seen(serial);
    const bool is_new = seen.image == rollout_.image;
    const bool has_restarted = seen.boot != node.boot;
    if (seen.is_here && is_new) return Enter(node, State::kUpdated);  // U4
    std::string why;
    if (rollout_.state == RolloutState::kRollingBack)
      why = "the rollout is taken back";
    else if (has_restarted && is_new && !seen.test_failed.empty())
      why = absl::StrCat("it fails its join test: ", seen.test_failed);
    else if (has_restarted && seen.is_here)
      why = absl::StrCat("it came back under ",
                         seen.image.empty() ? "an image that it does not name" : seen.image);
    else if (!seen.is_here && seen.has_asked_again)
      why = has_restarted ? "it has enrolled, has not joined, and is on its way back"
                          : "it has asked what to boot, got no further, and is on its way back";
    else if (IsLate(node))
      why = absl::StrCat(HowFar(seen, has_restarted), " within ", rollout_.within_ms / 1000, " s");
    if (why.empty()) return;
    if (rollout_.state == RolloutState::kRunning) {
      rollout_.state = RolloutState::kStopped;  // U3
      rollout_.why = absl::StrCat(serial, ": ", why);
    }
    TakeBack(serial, node, why);
  }

  // Of one that does not serve. What boots and reaches no gateway, or another one than it believes,
  // looks like what does not boot: a node's log needs its certificate.
  static const char* HowFar(const NodeSeen& seen, bool has_restarted) {
    if (has_restarted) return "it has enrolled, and does not join";
    if (seen.is_here) return "it does not restart";
    return seen.has_asked ? "it has asked what to boot, and got no further"
                          : "it has not asked what to boot";
  }

  void TakeBack(const std::string& serial, RolloutNode& node, const std::string& why) {
    node.why = why;
    node.tries = 0;
    Enter(node, State::kReturning);
    actions_.push_back({Kind::kKeepImage, serial, node.from});
    const NodeSeen& seen = Seen(serial);
    // Switched off and on now, one that is on its way back would begin again.
    if (!seen.is_here && seen.has_asked_again) {
      node.boot = seen.boot;
      node.signs = 1;
      return;
    }
    if (!(seen.is_here && seen.image == node.from)) Tell(serial, node);
  }

  void LookAtReturning(const std::string& serial, RolloutNode& node) {
    const NodeSeen& seen = Seen(serial);
    if (seen.is_here && seen.image == node.from) return Enter(node, State::kTakenBack);
    const bool has_enrolled = !seen.boot.empty() && seen.boot != node.boot;
    const int signs = has_enrolled ? 2 : seen.has_asked ? 1 : 0;
    if (!seen.is_here && signs > node.signs) {
      node.signs = signs;
      node.since = now_;
    }
    if (IsLateOnItsWay(node) && node.tries < kReturnTriesMax) Tell(serial, node);
  }

  void Tell(const std::string& serial, RolloutNode& node) {
    const NodeSeen& seen = Seen(serial);
    node.boot = seen.boot;
    node.since = now_;
    node.signs = 0;
    ++node.tries;
    actions_.push_back({seen.is_here ? Kind::kRestart : Kind::kPowerCycle, serial});
  }

  void Begin() {
    for (auto& [serial, node] : rollout_.by_serial)
      if (node.state == State::kPending && Seen(serial).is_here &&
          Seen(serial).image == rollout_.image)
        Enter(node, State::kUpdated);
    const bool first_serves = Count(State::kUpdated) > 0;
    int room = first_serves ? Room() : std::min(1, Room());  // U2
    if (!first_serves && Count(State::kUpdating) > 0) room = 0;
    bool any_here = false;
    for (auto& [serial, node] : rollout_.by_serial) {
      if (node.state != State::kPending || !Seen(serial).is_here) continue;  // U5
      any_here = true;
      if (room <= 0) break;
      --room;
      Enter(node, State::kUpdating);
      node.boot = Seen(serial).boot;
      actions_.push_back({Kind::kTryImage, serial, rollout_.image});
      actions_.push_back({Kind::kRestart, serial});
    }
    if (any_here || Count(State::kUpdating) > 0) return;
    rollout_.state = RolloutState::kDone;
    if (const int away = Count(State::kPending); away > 0)
      rollout_.why = absl::StrCat(away, " nodes were not here: they get it at their next boot");
  }

  void Return() {
    int room = Room();
    bool any_left = false;
    for (auto& [serial, node] : rollout_.by_serial) {
      if (node.state != State::kUpdated) continue;
      any_left = true;
      if (room <= 0) break;
      --room;
      TakeBack(serial, node, "the rollout is taken back");
    }
    if (!any_left && !IsAnyUnderWay(rollout_)) rollout_.state = RolloutState::kRolledBack;
  }

  Rollout& rollout_;
  const std::map<std::string, NodeSeen>& seen_;
  const WallTime now_;
  std::vector<RolloutAction> actions_;
};

}  // namespace

const char* ToString(RolloutNodeState state) {
  switch (state) {
    case State::kPending: return "pending";
    case State::kUpdating: return "updating";
    case State::kUpdated: return "updated";
    case State::kReturning: return "returning";
    case State::kTakenBack: return "taken back";
  }
  return "";
}

const char* ToString(RolloutState state) {
  switch (state) {
    case RolloutState::kRunning: return "running";
    case RolloutState::kStopped: return "stopped";
    case RolloutState::kDone: return "done";
    case RolloutState::kRollingBack: return "rolling back";
    case RolloutState::kRolledBack: return "rolled back";
  }
  return "";
}

std::vector<RolloutAction> Step(Rollout& rollout, const std::map<std::string, NodeSeen>& seen,
                                WallTime now) {
  return Stepping(rollout, seen, now).Run();
}

void Rollback(Rollout& rollout) {
  if (rollout.state == RolloutState::kRolledBack) return;
  rollout.state = RolloutState::kRollingBack;
}

bool IsSettled(const Rollout& rollout) {
  if (rollout.state == RolloutState::kRunning || rollout.state == RolloutState::kRollingBack)
    return false;
  return !IsAnyUnderWay(rollout);
}

}  // namespace outboard::gateway
