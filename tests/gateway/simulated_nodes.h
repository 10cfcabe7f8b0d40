// Machines that boot over the network, in virtual time: what they boot comes from the rows that the
// boot server reads, and what they say goes where the gateway keeps it.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "gateway/nodes/image_rows.h"
#include "gateway/nodes/node_keeper.h"
#include "gateway/nodes/node_registry.h"

namespace outboard::gateway {

// What becomes of a machine that boots it.
enum class ImageKind {
  kGood,
  kPanics,        // the kernel starts the machine again after ten seconds
  kHangs,         // nothing happens any more until somebody switches the machine off and on
  kDoesNotJoin,   // process 1 runs, and no worker joins
  kFailsTest,     // the worker is refused each time
  kDrainsForever  // good, but does not end when it is told to start again
};

class SimulatedNodes {
 public:
  static constexpr int64_t kDrainMs = 2'000, kBootMs = 8'000, kPanicMs = 10'000;

  SimulatedNodes(const std::string& accounts_path, WallTime now)
      : registry_(NodeRegistry::Open(accounts_path).value()),
        images_(ImageRows::Open(accounts_path).value()),
        keeper_(NodeKeeper::Open(accounts_path,
                                 {.here = [this] { return Here(); },
                                  .drain = [this](const std::string& s) { return IsHere(s); },
                                  .restart = [this](const std::string& s,
                                                    const std::string&) { return Restart(s); },
                                  .set_aside = [this](const std::string& s,
                                                      const std::string&) { return IsHere(s); },
                                  .power_cycle =
                                      [this](const std::string& s) { return Cycle(s); }})
                    .value()),
        now_(now) {}

  ImageRows& images() { return *images_; }
  NodeKeeper& keeper() { return *keeper_; }
  WallTime now() const { return now_; }
  void SetKind(const std::string& image, ImageKind kind) { kinds_[image] = kind; }
  void AllowPowerCycles() { has_power_ = true; }
  // From now on a machine takes so long from asking what to boot until it has enrolled, and from
  // there until it has joined.
  void SetStart(int64_t until_enrolled_ms, int64_t until_joined_ms) {
    until_enrolled_ms_ = until_enrolled_ms;
    until_joined_ms_ = until_joined_ms;
  }
  int power_cycles() const { return power_cycles_; }
  int sessions_lost() const { return sessions_lost_; }
  int most_away() const { return most_away_; }

  // It is switched on, and boots what the boot server has for it.
  void PowerOn(const std::string& serial, int sessions = 0) {
    Node& node = nodes_[serial];
    node.sessions = sessions;
    Boot(node);
  }
  const std::string& ImageOf(const std::string& serial) { return nodes_[serial].image; }
  bool IsHere(const std::string& serial) { return nodes_[serial].state == State::kHere; }
  std::set<std::string> Here() const {
    std::set<std::string> here;
    for (const auto& [serial, node] : nodes_)
      if (node.state == State::kHere || node.state == State::kDraining) here.insert(serial);
    return here;
  }

  // A second, and a turn of the gateway's.
  absl::Status Second() {
    now_.unix_ms += 1000;
    for (auto& [serial, node] : nodes_) Advance(serial, node);
    most_away_ = std::max(most_away_, static_cast<int>(nodes_.size() - Here().size()));
    return keeper_->Tick(now_);
  }

 private:
  enum class State { kOff, kBooting, kHung, kUp, kTested, kHere, kDraining };
  struct Node {
    State state = State::kOff;
    std::string image;
    int64_t at_ms = 0;            // when the next thing happens
    int64_t restarts_at_ms = 0;   // of an image on trial that does not join; 0: never
    int sessions = 0, boots = 0;
  };

  ImageKind KindOf(const std::string& image) const {
    const auto at = kinds_.find(image);
    return at == kinds_.end() ? ImageKind::kGood : at->second;
  }
  void Boot(Node& node) {
    node.state = State::kBooting;
    node.at_ms = now_.unix_ms + kBootMs;
    node.restarts_at_ms = 0;
    ++node.boots;
    node.image.clear();
  }
  bool Restart(const std::string& serial) {
    Node& node = nodes_[serial];
    if (node.state != State::kHere) return false;
    if (KindOf(node.image) == ImageKind::kDrainsForever) return true;
    node.state = State::kDraining;
    node.at_ms = now_.unix_ms + kDrainMs;
    return true;
  }
  absl::Status Cycle(const std::string& serial) {
    if (!has_power_) return absl::UnavailableError("no hook");
    ++power_cycles_;
    Node& node = nodes_[serial];
    if (node.state == State::kHere) sessions_lost_ += node.sessions;
    Boot(node);
    return absl::OkStatus();
  }
  void Advance(const std::string& serial, Node& node) {
    if (node.restarts_at_ms > 0 && now_.unix_ms >= node.restarts_at_ms && node.state == State::kUp)
      return Boot(node);
    if (now_.unix_ms < node.at_ms) return;
    if (node.state == State::kDraining) {
      HandOver(serial, node);
      return Boot(node);
    }
    if (node.state == State::kBooting) {
      if (node.image.empty()) return Choose(serial, node);
      return Start(serial, node);
    }
    if (node.state == State::kTested) return Join(serial, node);
    if (node.state == State::kUp && KindOf(node.image) == ImageKind::kFailsTest) Test(serial, node);
  }
  // To another machine that is here, as the gateway does.
  void HandOver(const std::string& serial, Node& node) {
    for (auto& [other_serial, other] : nodes_)
      if (other_serial != serial && other.state == State::kHere) {
        other.sessions += std::exchange(node.sessions, 0);
        return;
      }
    sessions_lost_ += std::exchange(node.sessions, 0);
  }
  void Choose(const std::string& serial, Node& node) {
    const auto choice = images_->ChooseBoot(serial, /*takes=*/true).value();
    node.image = choice.has_value() ? choice->image : "sha256:first";
    node.restarts_at_ms =
        choice.has_value() && choice->on_trial ? now_.unix_ms + choice->within_ms : 0;
    node.at_ms = now_.unix_ms + until_enrolled_ms_;
  }
  void Start(const std::string& serial, Node& node) {
    switch (KindOf(node.image)) {
      case ImageKind::kPanics:
        node.at_ms = now_.unix_ms + kPanicMs;
        node.image.clear();
        return;  // and boots again
      case ImageKind::kHangs: node.state = State::kHung; return;
      case ImageKind::kDoesNotJoin: node.state = State::kUp; return;
      case ImageKind::kFailsTest:
        Enrol(serial, node);
        node.state = State::kUp;
        return Test(serial, node);
      case ImageKind::kGood:
      case ImageKind::kDrainsForever:
        Enrol(serial, node);
        node.state = State::kTested;
        node.at_ms = now_.unix_ms + until_joined_ms_;
        if (until_joined_ms_ == 0) Join(serial, node);
    }
  }
  void Join(const std::string& serial, Node& node) {
    keeper_->OnTested(serial, absl::OkStatus());
    node.state = State::kHere;
    node.restarts_at_ms = 0;
  }
  void Test(const std::string& serial, Node& node) {
    keeper_->OnTested(serial, absl::FailedPreconditionError("a product: element 0, 0 is 1"));
    node.at_ms = now_.unix_ms + 30'000;
  }
  void Enrol(const std::string& serial, const Node& node) {
    NodeRow row{.serial = serial, .key_id = serial + "-" + std::to_string(node.boots)};
    row.facts.set_serial(serial);
    row.facts.set_image(node.image);
    if (!registry_->Enrolled(row, now_).ok()) std::abort();
  }

  const std::unique_ptr<NodeRegistry> registry_;
  const std::unique_ptr<ImageRows> images_;
  std::map<std::string, ImageKind> kinds_;
  std::map<std::string, Node> nodes_;
  std::unique_ptr<NodeKeeper> keeper_;
  WallTime now_;
  int64_t until_enrolled_ms_ = 1000, until_joined_ms_ = 0;
  bool has_power_ = false;
  int power_cycles_ = 0, sessions_lost_ = 0, most_away_ = 0;
};

}  // namespace outboard::gateway
