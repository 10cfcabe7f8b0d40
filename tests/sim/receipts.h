// The receipts of a simulated world: what its workers sign, what the gateway keeps of that (the
// rows of production, in memory), and who is set aside for it. Beside them a model that shares no
// code with them, for worlds in which one of the workers lies (docs/testing.md):
//
//   W1  an honest worker is never set aside, nor taken for a liar
//   W2  a worker that contradicts what it signed gets no lease, and those it has end
//   W3  what is kept of a device was signed by the worker that leases it out, and is its last word
//   W4  an honest worker signs for what its devices are charged
//
// What is charged is not the workers' to say: M1 to M8 (books.h) hold whatever they sign.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/accounts/worker_quarantine.h"
#include "gateway/ledger/meter.h"
#include "gateway/proof/receipt_rows.h"
#include "proto/fleet.pb.h"
#include "tests/sim/world.h"
#include "tests/support/temp_folder.h"

namespace outboard::sim {

// What a worker does with the receipts that it should send.
enum class Lie {
  kNone,
  kCountsMore,    // an hour more than passed
  kOtherContent,  // a number twice, with other content
  kGoesBack,      // a later number that counts less
  kOthersLease,   // of a device that it does not have
  kForged,        // another content, or another worker, than the signature is for
  kWithholds,     // none
  kAny,           // each time another one of these
};
inline constexpr int kLies = static_cast<int>(Lie::kAny) + 1;

class Receipts final : public gateway::WorkerQuarantine {
 public:
  explicit Receipts(World* world) : world_(world) {}
  Receipts(const Receipts&) = delete;
  Receipts& operator=(const Receipts&) = delete;

  // Nothing is kept before: workers that write no receipts cost nothing.
  void Begin() {
    rows_ = ValueOrDie(gateway::ReceiptRows::Open(EmptyRows(), {.copied_to_memory = true}));
  }
  bool has_begun() const { return rows_ != nullptr; }
  void AddWorker(const std::string& name, const std::string& public_key, Lie lie) {
    workers_[name] = {.public_key = public_key, .lie = lie};
  }

  // ---- what the gateway of this turn decides, when it does
  void LeaseBegins(const gateway::LeaseRow& row, uint64_t turn) {
    if (!has_begun() || row.physical_devices.empty()) return;
    const std::string name = NodeOf(row.worker);
    const Worker& worker = workers_.at(name);
    if (KnowsOfLies(worker, turn))
      world_->Broken("W2: ", name, " gets a lease after it contradicted itself");
    leases_[row.lease] = name;
  }
  void LeaseEnds(const gateway::LeaseId& lease) { running_.erase(lease); }
  void Charged(const gateway::Charge& charge, uint64_t turn) {
    const auto at = leases_.find(charge.device.lease);
    if (at == leases_.end()) return;
    charged_ms_[charge.device] = charge.to_ms;
    const Worker& worker = workers_.at(at->second);
    if (KnowsOfLies(worker, turn) && world_->now() - worker.caught_at > kEndsWithin)
      world_->Broken("W2: a lease of ", at->second, " goes on after it contradicted itself");
  }
  void Offence(std::string_view worker, std::string_view kind) {
    const Lie lie = has_begun() ? workers_.at(NodeOf(worker)).lie : Lie::kNone;
    if (lie == Lie::kNone || (kind != "receipt" && kind != "receipt_conflict"))
      world_->Broken("W1: ", std::string(worker), " is taken for a liar: ", std::string(kind));
    world_->Count(absl::StrCat("caught: ", std::string(kind)));
  }
  void SetAside(std::string_view worker, std::string_view why) {
    world_->ExecutorTrace(std::string(worker), " is set aside: ", std::string(why));
    if (!workers_.at(NodeOf(worker)).contradicts)
      world_->Broken("W1: ", std::string(worker), " is set aside: ", std::string(why));
  }

  // What workers sign, truly or not.
  void Signed(const proto::Receipt& receipt) { signed_.insert(receipt.SerializeAsString()); }
  bool IsSigned(const proto::Receipt& receipt) const {
    return signed_.contains(receipt.SerializeAsString());
  }
  // Those that have something else for a signature, which stands for a good one.
  void StandsIn(const proto::Receipt& receipt) { stand_ins_.insert(receipt.SerializeAsString()); }
  bool HasStandIn(const proto::Receipt& receipt) const {
    return stand_ins_.contains(receipt.SerializeAsString());
  }

  // ---- what reaches the disk
  void Name(const gateway::LeaseRow& row) {
    if (!has_begun() || row.physical_devices.empty()) return;
    OB_CHECK_OK(rows_->NameDevices(row.lease, row.physical_devices));
    for (uint32_t i = 0; i < row.physical_devices.size(); ++i)
      named_[{row.lease, i}] = row.physical_devices[i];
    running_.insert(row.lease);
  }
  std::vector<absl::Status> Keep(const std::vector<proto::Receipt>& receipts, uint64_t turn) {
    const std::vector<absl::Status> kept = ValueOrDie(rows_->Keep(receipts));
    for (size_t i = 0; i < receipts.size(); ++i) {
      const absl::StatusCode due = KeepOne(receipts[i], turn);
      if (kept[i].code() != due)
        world_->Broken("W3: a receipt is ", absl::StatusCodeToString(due), " and found ",
                       kept[i].ToString());
    }
    return kept;
  }
  // Who is set aside. Now and then the disk has no time.
  absl::Status Add(const gateway::SetAsideWorker& worker) override {
    if (world_->OneIn(4)) return absl::UnavailableError("locked");
    aside_.push_back(worker);
    workers_.at(NodeOf(worker.name)).is_written = true;
    world_->Count("set aside");
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<gateway::SetAsideWorker>> Read() override { return aside_; }
  void GatewayStarts(uint64_t turn) {
    for (auto& [name, worker] : workers_)
      if (worker.is_written) worker.known_to = turn;
  }

  // A lease of another worker, that runs or ran.
  std::optional<gateway::LeaseId> OneOfOthers(const std::string& name) {
    std::vector<gateway::LeaseId> others;
    for (const gateway::LeaseId& lease : running_)
      if (leases_.contains(lease) && leases_.at(lease) != name) others.push_back(lease);
    if (others.empty()) return std::nullopt;
    return others[world_->Draw() % others.size()];
  }
  const std::string& AnotherKey(const std::string& name) const {
    return std::ranges::find_if(workers_, [&](const auto& entry) { return entry.first != name; })
        ->second.public_key;
  }

  void CheckAtEnd() {
    if (!has_begun()) return;
    for (const auto& [device, receipt] : last_) {
      const auto kept = ValueOrDie(rows_->Of(device.lease));
      if (std::ranges::none_of(kept, [&, last = receipt.SerializeAsString()](const auto& one) {
            return one.SerializeAsString() == last;
          }))
        world_->Broken("W3: the last receipt of a device is not kept");
    }
    for (const auto& [device, charged_ms] : charged_ms_) {
      if (workers_.at(leases_.at(device.lease)).lie != Lie::kNone) continue;
      const auto last = last_.find(device);
      const auto signed_ms =
          last == last_.end() ? 0 : static_cast<int64_t>(last->second.usable_ms());
      if (charged_ms - signed_ms > kSlackMs)
        world_->Broken("W4: an honest worker signed ", signed_ms, " ms of ", charged_ms);
      if (signed_ms > 0) world_->Count("signed for");
    }
  }

 private:
  static constexpr int64_t kEndsWithin = 2 * kSecond;
  static constexpr int64_t kSlackMs = 10'000;  // what may be lost with a gateway, or is under way
  struct Worker {
    std::string public_key;
    Lie lie = Lie::kNone;
    bool contradicts = false;
    uint64_t known_to = 0;  // the last gateway that saw it, or read who is set aside
    int64_t caught_at = 0;
    bool is_written = false;
  };

  // Without entries, made once.
  static std::string EmptyRows() {
    static const test::TempFolder folder;
    static const std::string path = [] {
      const std::string rows = folder / "receipts.db";
      ValueOrDie(gateway::ReceiptRows::Open(rows));
      return rows;
    }();
    return path;
  }
  // "worker 1" of "worker 1#7", as the gateway calls it.
  static std::string NodeOf(std::string_view name) {
    return std::string(name.substr(0, name.rfind('#')));
  }
  static bool KnowsOfLies(const Worker& worker, uint64_t turn) {
    return worker.known_to != 0 && worker.known_to == turn;
  }

  absl::StatusCode KeepOne(const proto::Receipt& receipt, uint64_t turn) {
    const gateway::LeasedDevice device{
        {*gateway::SessionId::FromBytes(receipt.session_id()), receipt.grant()}, receipt.device()};
    const auto signer = std::ranges::find_if(
        workers_, [&](const auto& entry) { return entry.second.public_key == receipt.key(); });
    if (signer == workers_.end() || !IsSigned(receipt))
      world_->Broken("W3: a receipt is kept that its worker did not sign");
    const auto named = named_.find(device);
    if (named == named_.end() || named->second != receipt.physical_device())
      return absl::StatusCode::kPermissionDenied;
    const auto [before, is_first] = last_.try_emplace(device, receipt);
    if (is_first) return absl::StatusCode::kOk;
    const auto counts = [](const proto::Receipt& of) {
      return std::tuple(of.number(), of.usable_ms(), of.busy_ms());
    };
    const auto [number, usable_ms, busy_ms] = counts(receipt);
    const auto [last_number, last_usable_ms, last_busy_ms] = counts(before->second);
    const bool is_later = number > last_number;
    const bool counts_less = is_later ? usable_ms < last_usable_ms || busy_ms < last_busy_ms
                                      : usable_ms > last_usable_ms || busy_ms > last_busy_ms;
    if (counts_less || (number == last_number && counts(receipt) != counts(before->second))) {
      Worker& liar = signer->second;
      if (!std::exchange(liar.contradicts, true)) liar.caught_at = world_->now();
      liar.known_to = turn;
      return absl::StatusCode::kAborted;
    }
    if (is_later) before->second = receipt;
    return absl::StatusCode::kOk;
  }

  World* const world_;
  std::unique_ptr<gateway::ReceiptRows> rows_;
  std::map<std::string, Worker> workers_;  // by name
  std::vector<gateway::SetAsideWorker> aside_;
  std::map<gateway::LeaseId, std::string> leases_;  // whose worker it is
  std::set<gateway::LeaseId> running_;
  std::set<std::string> signed_, stand_ins_;
  std::map<gateway::LeasedDevice, std::string> named_;
  std::map<gateway::LeasedDevice, proto::Receipt> last_;
  std::map<gateway::LeasedDevice, int64_t> charged_ms_;
};

}  // namespace outboard::sim
