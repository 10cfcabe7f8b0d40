// A simulated worker's receipts: what production counts and signs, and what a liar makes of it.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "proto/fleet.pb.h"
#include "tests/sim/fake_engine.h"
#include "tests/sim/receipts.h"
#include "tests/sim/world.h"
#include "tests/support/temp_folder.h"
#include "wire/proof/receipt.h"
#include "wire/proof/signing_key.h"
#include "wire/tls/private_file.h"
#include "worker/receipts/lease_counter.h"

namespace outboard::sim {

class ReceiptWriter {
 public:
  ReceiptWriter(World* world, Receipts* receipts, std::string node, Lie lie)
      : world_(world), receipts_(receipts), node_(std::move(node)), key_(KeyOf(node_)), lie_(lie) {
    receipts->AddWorker(node_, key_.public_key(), lie);
    Restart();
  }

  // What it has counted is gone; the key is in a file.
  void Restart() {
    counter_ = std::make_unique<worker::LeaseCounter>(
        key_, [this](const signing::SigningKey&, proto::Receipt& receipt) { Sign(receipt); });
  }

  void AddTo(proto::Register& entry) const { counter_->AddTo(entry); }
  // In every third one, unlike in production.
  void AddTo(proto::Heartbeat& beat) {
    if (++beats_ % 3 != 0) return;
    counter_->AddTo(beat, Now());
    std::vector<proto::Receipt> receipts(beat.receipts().begin(), beat.receipts().end());
    for (const proto::Receipt& receipt : receipts) receipts_->Signed(receipt);
    Distort(receipts);
    *beat.mutable_receipts() = {receipts.begin(), receipts.end()};
  }
  // What the gateway is told at once.
  std::vector<proto::WorkerEvent> On(const proto::GatewayCommand& command) {
    std::vector<proto::Receipt> receipts;
    for (const proto::WorkerEvent& event : counter_->On(command, Now()))
      receipts.push_back(event.receipt());
    for (const proto::Receipt& receipt : receipts) receipts_->Signed(receipt);
    if (!receipts.empty()) Distort(receipts);
    std::vector<proto::WorkerEvent> events(receipts.size());
    for (size_t i = 0; i < events.size(); ++i) *events[i].mutable_receipt() = receipts[i];
    return events;
  }
  void Works(const std::string& session, uint32_t device) {
    counter_->Works(session, device, true, Now());
  }
  void Gone(const std::string& session, uint32_t device) {
    counter_->Gone(session, device, Now());
  }

 private:
  static constexpr int64_t kLiesFrom = 3 * kSecond;  // what it said before is known by then
  static constexpr uint64_t kHourMs = 3'600'000;

  // The same one in each run.
  static signing::SigningKey KeyOf(const std::string& node) {
    static const test::TempFolder folder;
    const std::string path = folder / node;
    OB_CHECK_OK(tls::WriteFile(path, std::string(63, 'a') + node.back(), /*is_secret=*/true,
                               tls::Replace::kYes));
    return ValueOrDie(signing::SigningKey::Open(path));
  }
  worker::LeaseCounter::Clock::time_point Now() const {
    return worker::LeaseCounter::Clock::time_point(std::chrono::nanoseconds(world_->now()));
  }

  void Distort(std::vector<proto::Receipt>& receipts) {
    if (lie_ == Lie::kNone || world_->now() < kLiesFrom) return;
    const Lie lie = lie_ != Lie::kAny ? lie_ : static_cast<Lie>(world_->Between(0, kLies - 2));
    if (lie == Lie::kWithholds) receipts.clear();
    if (lie == Lie::kOthersLease) AddOfAnother(receipts);
    if (receipts.empty() || lie == Lie::kNone) return;
    world_->Count("lies");
    proto::Receipt& one = receipts[world_->Draw() % receipts.size()];
    switch (lie) {
      case Lie::kCountsMore:
        for (proto::Receipt& receipt : receipts) SignFor(receipt, receipt.usable_ms() + kHourMs);
        break;
      case Lie::kOtherContent:
        if (!world_->OneIn(2)) break;
        receipts.push_back(one);
        SignFor(receipts.back(), one.usable_ms() + 1);
        break;
      case Lie::kGoesBack:
        if (world_->OneIn(2)) SignFor(one, one.usable_ms() / 2);
        break;
      case Lie::kForged:
        if (world_->OneIn(2)) {
          signing::Sign(key_, one);  // a real signature, so that it is refused for its content
          one.set_usable_ms(one.usable_ms() + kHourMs);
        } else {
          one.set_key(receipts_->AnotherKey(node_));
          one.set_physical_device(signing::PhysicalDevice(one.key(), 0));
        }
        break;
      default: break;
    }
  }
  // As if the device were its own.
  void AddOfAnother(std::vector<proto::Receipt>& receipts) {
    const auto lease = receipts_->OneOfOthers(node_);
    if (!lease.has_value()) return;
    proto::Receipt& receipt = receipts.emplace_back();
    receipt.set_session_id(lease->session.Bytes());
    receipt.set_grant(lease->grant);
    receipt.set_number(1000);
    receipt.set_physical_device(signing::PhysicalDevice(key_.public_key(), 0));
    SignFor(receipt, kHourMs);
  }
  void SignFor(proto::Receipt& receipt, uint64_t usable_ms) {
    receipt.set_usable_ms(usable_ms);
    receipt.set_busy_ms(std::min(receipt.busy_ms(), usable_ms));
    Sign(receipt);
    receipts_->Signed(receipt);
  }
  // One in eight, which the gateway then checks as production does. To sign one takes as long as
  // thirty events, and to check it as long as eighty: the others have a stand-in for the signature,
  // that nothing but the simulator takes for one. Which one it is depends on its content alone, so
  // that the same content has the same signature.
  void Sign(proto::Receipt& receipt) {
    receipt.set_key(key_.public_key());
    receipt.clear_signature();
    const uint64_t hash = HashOf(receipt.SerializeAsString());
    if (hash % 8 == 0) return signing::Sign(key_, receipt);
    receipt.set_signature(absl::StrCat("stands in: ", hash));
    receipts_->StandsIn(receipt);
  }

  World* const world_;
  Receipts* const receipts_;
  const std::string node_;
  const signing::SigningKey key_;
  const Lie lie_;
  uint64_t beats_ = 0;
  std::unique_ptr<worker::LeaseCounter> counter_;
};

}  // namespace outboard::sim
