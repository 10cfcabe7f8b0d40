#include "gateway/nodes/node_keeper.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/base/clock.h"
#include "telemetry/log.h"

namespace outboard::gateway {
namespace {

constexpr std::chrono::seconds kTickEvery{1};
// Of a node that fails its test and tries again every minute the last result is enough.
constexpr size_t kTestsMax = 4096;

}  // namespace

absl::StatusOr<std::unique_ptr<NodeKeeper>> NodeKeeper::Open(const std::string& accounts_path,
                                                             NodeFleet fleet) {
  OB_ASSIGN_OR_RETURN(auto registry, NodeRegistry::Open(accounts_path));
  OB_ASSIGN_OR_RETURN(auto orders, NodeOrders::Open(accounts_path));
  OB_ASSIGN_OR_RETURN(auto images, ImageRows::Open(accounts_path));
  return std::unique_ptr<NodeKeeper>(new NodeKeeper(std::move(registry), std::move(orders),
                                                    std::move(images), std::move(fleet)));
}

NodeKeeper::NodeKeeper(std::unique_ptr<NodeRegistry> registry, std::unique_ptr<NodeOrders> orders,
                       std::unique_ptr<ImageRows> images, NodeFleet fleet)
    : registry_(std::move(registry)),
      orders_(std::move(orders)),
      images_(std::move(images)),
      fleet_(std::move(fleet)) {}

NodeKeeper::~NodeKeeper() { Stop(); }

void NodeKeeper::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void NodeKeeper::Start() {
  thread_ = std::thread([this] { Work(); });
}

void NodeKeeper::OnTested(const std::string& serial, const absl::Status& result) {
  std::lock_guard lock(mutex_);
  if (tested_.size() < kTestsMax || tested_.contains(serial)) tested_[serial] = result;
  wake_.notify_all();
}

void NodeKeeper::Work() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kTickEvery, [this] { return stopping_ || !tested_.empty(); });
      if (stopping_) return;
    }
    const absl::Status status = Tick(WallNow());
    if (std::exchange(trouble_, status) != status && !status.ok()) {
      const std::string message(status.message());
      telemetry::LogError("nodes_not_kept", {{"message", message}});
    }
    if (status.ok()) continue;
    std::unique_lock lock(mutex_);
    if (wake_.wait_for(lock, kTickEvery, [this] { return stopping_; })) return;
  }
}

absl::Status NodeKeeper::Tick(WallTime now) {
  OB_RETURN_IF_ERROR(NoteTests(now));
  OB_RETURN_IF_ERROR(TellOrders(now));
  return StepRollout(now);
}

absl::Status NodeKeeper::NoteTests(WallTime now) {
  std::map<std::string, absl::Status> tested;
  {
    std::lock_guard lock(mutex_);
    tested = tested_;
  }
  for (const auto& [serial, result] : tested) {
    const auto node = registry_->Find(serial);
    if (!node.ok() && !absl::IsNotFound(node.status())) return node.status();
    // One that was removed meanwhile is none of ours.
    if (node.ok())
      OB_RETURN_IF_ERROR(orders_->NoteTest(
          serial,
          {result.ok(), std::string(result.message()), node->facts.image(), now}));
    std::lock_guard lock(mutex_);
    if (const auto at = tested_.find(serial); at != tested_.end() && at->second == result)
      tested_.erase(at);
  }
  return absl::OkStatus();
}

absl::Status NodeKeeper::TellOrders(WallTime now) {
  OB_ASSIGN_OR_RETURN(const std::vector<NodeOrderRow> orders, orders_->Pending(now));
  for (const NodeOrderRow& order : orders) {
    bool told = false;
    switch (order.order) {
      case NodeOrder::kDrain: told = fleet_.drain(order.serial); break;
      case NodeOrder::kRestart: told = fleet_.restart(order.serial, order.why); break;
      case NodeOrder::kQuarantine: told = fleet_.set_aside(order.serial, order.why); break;
    }
    if (!told) continue;  // it may come
    telemetry::LogInfo("node_told", {{"node", order.serial},
                                     {"order", ToString(order.order)},
                                     {"why", order.why}});
    OB_RETURN_IF_ERROR(orders_->Told(order));
  }
  return absl::OkStatus();
}

absl::Status NodeKeeper::StepRollout(WallTime now) {
  const std::set<std::string> here = fleet_.here();
  OB_ASSIGN_OR_RETURN(const std::vector<NodeRow> rows, registry_->List());
  OB_ASSIGN_OR_RETURN(const auto tests, orders_->Tests());
  std::map<std::string, NodeSeen> seen;
  for (const NodeRow& row : rows) {
    if (row.state != NodeState::kEnrolled) continue;
    NodeSeen& node = seen[row.serial];
    node = {.is_here = here.contains(row.serial),
            .image = row.facts.image(),
            .boot = row.key_id,
            .test_failed = {}};
    const auto test = tests.find(row.serial);
    // Of this start alone: an earlier one may have failed under the same image.
    if (test != tests.end() && !test->second.passed && test->second.image == node.image &&
        test->second.at >= row.since)
      node.test_failed = test->second.why;
    if (!node.is_here || node.image.empty() || served_.contains(node.image)) continue;
    OB_RETURN_IF_ERROR(images_->NoteServed(node.image, now));
    served_.insert(node.image);
  }
  OB_ASSIGN_OR_RETURN(const ImageRows::Stepped stepped, images_->StepRollout(seen, now));
  for (const RolloutAction& action : stepped.actions) Do(action);
  if (!stepped.changed.has_value()) return absl::OkStatus();
  int updated = 0, taken_back = 0;
  for (const auto& [serial, node] : stepped.changed->by_serial) {
    updated += node.state == RolloutNodeState::kUpdated;
    taken_back += node.state == RolloutNodeState::kTakenBack;
  }
  telemetry::LogInfo("rollout", {{"image", stepped.changed->image},
                                 {"nodes", stepped.changed->nodes},
                                 {"state", ToString(stepped.changed->state)},
                                 {"why", stepped.changed->why},
                                 {"updated", updated},
                                 {"taken_back", taken_back},
                                 {"of", stepped.changed->by_serial.size()}});
  return absl::OkStatus();
}

void NodeKeeper::Do(const RolloutAction& action) {
  if (action.kind == RolloutAction::Kind::kRestart) {
    fleet_.restart(action.serial, "a rollout");
    return;
  }
  const absl::Status cycled = fleet_.power_cycle(action.serial);
  if (cycled.ok()) return telemetry::LogInfo("node_power_cycled", {{"node", action.serial}});
  const std::string message(cycled.message());
  telemetry::LogWarning("node_not_power_cycled", {{"node", action.serial}, {"message", message}});
}

}  // namespace outboard::gateway
