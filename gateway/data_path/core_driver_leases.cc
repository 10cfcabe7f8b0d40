// Leases as they begin and end, what is charged for them, and the receipts that workers write.
//
// Both sides count. The charges are the core's, by the gateway's clock; DeviceTime checks that they
// are for no more time than passed, and receipts say what the workers counted. And the price file:
// which class a device is of, what that costs, and whether it reaches what its class promises.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/base/limits.h"
#include "gateway/data_path/core_driver_entries.h"
#include "gateway/data_path/host.h"
#include "gateway/prices/price_list.h"
#include "proto/cloud.pb.h"
#include "proto/fleet.pb.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "wire/proof/receipt.h"

namespace outboard::gateway {

namespace {
// Receipts of leases that run are kept as often as they are charged.
constexpr int64_t kKeepReceiptsTicks = 5'000 / kTickMs;
// Of leased devices; a worker may name some that there are not.
constexpr size_t kReceiptsWaitingMax = 1 << 16;
}  // namespace

void CoreDriver::RememberUse(const std::map<TenantId, double>& used) {
  std::lock_guard lock(mutex_);
  for (const auto& [account, device_s] : used)
    core_.RememberUse(account, device_s, host_->Now());
}

// The wall clock is read first and the difference rounded up, so that this is never later
// than `at`: a lease whose end is stamped when it is written has then held its devices for as long
// as it is charged, or longer.
WallTime CoreDriver::WallAt(MonoTime at) const {
  const WallTime now = host_->WallNow();
  const int64_t ago_ns = std::max<int64_t>(0, host_->Now().ns - at.ns);
  return {now.unix_ms - (ago_ns + kNsPerMs - 1) / kNsPerMs};
}

// A worker and a client hear of a lease once its row is on disk (D3): a gateway which starts
// after a crash numbers the next lease as the last one that was not, and one number must not stand
// for two. It is charged from then on, too, so that both sides count the same time.
void CoreDriver::Do(BeginLease& action) {
  LeaseRow row;
  row.lease = action.lease;
  row.tenant = action.tenant;
  row.devices = action.devices;
  row.worker = NameOf(action.worker);
  row.granted_at = WallAt(action.at);
  row.use = action.use;
  row.key_id = action.key_id;
  row.price_class = action.price_class;
  std::vector<std::string> held;
  if (HoldsDevice(action.use)) {
    row.physical_devices = PhysicalDevicesOf(action.seats);
    held = HeldDevicesOf(action.seats);
  } else {  // state alone: what is metered is of no device
    for (uint32_t i = 0; i < action.devices; ++i)
      held.push_back(absl::StrCat("state/", action.lease.session.Hex(), "/", i));
  }
  device_time_.Begin(action.lease, held, action.at);
  writes_->Grant(std::move(row));
  writes_->Then([this, action](const absl::Status& written) {
    if (!written.ok()) return;
    std::lock_guard lock(mutex_);
    Tell(LeaseWritten{action.lease});
    if (!core_.IsWritten(action.lease)) return;  // it has ended meanwhile, or was never written
    if (HoldsDevice(action.use)) TellWorkers(action.lease, action.seats, LeaseChange::kBegins);
  });
}

void CoreDriver::Do(EndLease& action) {
  device_time_.End(action.lease);
  writes_->EndLease(action.lease, action.why);
  if (!HoldsDevice(action.use)) return;  // no worker counts it
  writes_->Then([this, action](const absl::Status& written) {
    if (!written.ok()) return;
    std::lock_guard lock(mutex_);
    TellWorkers(action.lease, action.seats, LeaseChange::kEnds);
  });
}

std::vector<std::string> CoreDriver::PhysicalDevicesOf(const std::vector<Seat>& seats) const {
  std::vector<std::string> devices;
  for (const Seat& seat : seats) {
    const Worker* const worker = FindWorker(seat.worker);
    const std::string key = worker == nullptr             ? ""
                            : worker->receipt_key.empty() ? worker->identity.substr(0, 16)
                                                          : worker->receipt_key;
    for (const uint32_t slot : seat.slots) devices.push_back(signing::PhysicalDevice(key, slot));
  }
  return devices;
}

// Receipts name a device by their key, which is public and shown by anybody; what has a device is
// known by what its worker alone can show.
std::vector<std::string> CoreDriver::HeldDevicesOf(const std::vector<Seat>& seats) const {
  std::vector<std::string> devices;
  for (const Seat& seat : seats) {
    const Worker* const worker = FindWorker(seat.worker);
    const std::string known_as = worker == nullptr ? "" : worker->KnownIdentity();
    for (const uint32_t slot : seat.slots) devices.push_back(absl::StrCat(known_as, "/", slot));
  }
  return devices;
}

// Each worker that counts, of its own devices.
void CoreDriver::TellWorkers(const LeaseId& lease, const std::vector<Seat>& seats,
                             LeaseChange which) {
  uint32_t place = 0;  // of the next device within the session
  for (const Seat& seat : seats) {
    const uint32_t first = std::exchange(place, place + static_cast<uint32_t>(seat.slots.size()));
    const Worker* const worker = FindWorker(seat.worker);
    if (worker == nullptr || worker->receipt_key.empty() || seat.slots.empty()) continue;
    if (which == LeaseChange::kBegins)
      worker->receipts->Give(kReceiptsPerLease * static_cast<double>(seat.slots.size()),
                             signing::kReceiptsMax);
    proto::GatewayCommand command;
    proto::LeaseChange& change = *command.mutable_lease_change();
    change.set_session_id(lease.session.Bytes());
    change.set_grant(lease.grant);
    change.set_ends(which == LeaseChange::kEnds);
    for (uint32_t i = 0; i < seat.slots.size(); ++i) {
      change.add_devices(seat.slots[i]);
      change.add_places(first + i);
    }
    worker->endpoint->Send(std::move(command));
  }
}

// A charge for more time than passed is a fault of ours: nobody pays for it, and the account's
// leases stop, as if the ledger had refused it.
void CoreDriver::Do(gateway::Post& action) {
  std::map<TenantId, absl::Status> wrong;
  for (const Charge& charge : action.charges)
    if (absl::Status status = device_time_.Check(charge, host_->Now()); !status.ok())
      wrong.try_emplace(charge.tenant, std::move(status));
  const auto refuse = [this](TenantId tenant, const absl::Status& why) {
    std::lock_guard lock(mutex_);
    Tell(PostingRefused{tenant, why});
  };
  for (const auto& [tenant, why] : wrong) {
    telemetry::Count(telemetry::Metric::kPostingsRefused);
    telemetry::LogError("posting_refused", {{"account", tenant.value},
                                            {"message", why.ToString()},
                                            {"effect", "its leases stop"}});
    host_->Post([refuse, tenant = tenant, why = why] { refuse(tenant, why); });
  }
  std::erase_if(action.charges,
                [&](const Charge& charge) { return wrong.contains(charge.tenant); });
  if (!action.charges.empty()) writes_->Post(std::move(action.charges), refuse);
}

void DriverHost::GiveUp(const absl::Status& why) { OB_CHECK_OK(why); }

bool DriverHost::IsSigned(const proto::Receipt& receipt) {
  return signing::CheckReceipt(receipt).ok();
}

// Signatures are checked on another thread.
void CoreDriver::OnReceipts(WorkerId id, std::vector<proto::Receipt> receipts, bool is_last) {
  {
    std::lock_guard lock(mutex_);
    if (!MaySend(id, receipts.size())) return;
  }
  host_->Post([this, id, receipts = std::move(receipts), is_last] {
    std::vector<bool> good;
    for (const proto::Receipt& receipt : receipts)
      good.push_back(host_->IsSigned(receipt));
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    for (size_t i = 0; i < receipts.size(); ++i) NoteReceipt(id, receipts[i], good[i]);
    keep_receipts_soon_ |= is_last;
  });
}

// By what its leases need. Of an account's own machines all together, also of those that come back.
bool CoreDriver::MaySend(WorkerId id, size_t receipts) {
  Worker* const worker = FindWorker(id);
  if (worker == nullptr || worker->is_cut) return false;
  size_t leased = core_.DevicesHeldOn(id);
  if (worker->owner.has_value()) {
    leased = 0;
    for (const auto& [other_id, other] : workers_)
      if (other->owner == worker->owner) leased += core_.DevicesHeldOn(other_id);
  }
  const double per_beat = kReceiptsPerBeat * static_cast<double>(leased);
  const double beats_per_s = 1e9 / static_cast<double>(std::max<int64_t>(1, options_.heartbeat_ns));
  const double at_once = signing::kReceiptsMax + per_beat;
  worker->receipts->Fill(kReceiptsIdlePerS + per_beat * beats_per_s, at_once, host_->Now());
  if (receipts <= static_cast<size_t>(signing::kReceiptsMax) &&
      worker->receipts->Take(static_cast<double>(receipts)))
    return true;
  OnOffence(id, {}, telemetry::WorkerOffence::kReceipt);
  Cut(*worker, absl::ResourceExhaustedError(absl::StrCat(
                   "the worker sends more receipts than its leases need: ", receipts,
                   " in a message, ", leased, " devices are leased")));
  return false;
}

void CoreDriver::NoteReceipt(WorkerId id, const proto::Receipt& receipt, bool is_good) {
  Worker* const worker = FindWorker(id);
  if (worker == nullptr) return;  // it has gone; its next connection sends it again
  if (worker->is_cut) return;
  const auto session = SessionId::FromBytes(receipt.session_id());
  if (!is_good || receipt.key() != worker->receipt_key || !session.has_value()) {
    OnOffence(id, session.value_or(SessionId{}), telemetry::WorkerOffence::kReceipt);
    // Each is a line in the log, which is not a stranger's to fill.
    if (worker->owner.has_value())
      Cut(*worker, absl::PermissionDeniedError(
                       "the worker is refused: it sent a receipt that it did not sign"));
    return;
  }
  const std::pair from(LeasedDevice{{*session, receipt.grant()}, receipt.device()}, id);
  // Sent again with the next beat.
  if (receipts_.size() >= kReceiptsWaitingMax && !receipts_.contains(from)) return;
  Receipts& sender = receipts_[from];
  sender.identity = worker->identity;
  sender.name = worker->name;
  sender.is_own = worker->owner.has_value();
  std::vector<proto::Receipt>& waiting = sender.receipts;
  // The last one stands for those before it, unless one of them contradicts another.
  if (waiting.size() == 2) waiting.erase(waiting.begin());
  if (waiting.empty() || waiting.back().signature() != receipt.signature())
    waiting.push_back(receipt);
}

void CoreDriver::KeepReceipts() {
  if (receipts_.empty()) return;
  std::vector<proto::Receipt> all;
  struct Sender {
    WorkerId worker;
    std::string identity, name;
    bool is_own = false;
  };
  std::map<std::string, Sender> from;  // by key; of one that came back, its last connection
  for (auto& [device_and_worker, waiting] : receipts_)
    for (proto::Receipt& receipt : waiting.receipts) {
      Sender& sender = from[receipt.key()];
      if (sender.worker <= device_and_worker.second)
        sender = {device_and_worker.second, waiting.identity, waiting.name, waiting.is_own};
      all.push_back(std::move(receipt));
    }
  receipts_.clear();
  writes_->KeepReceipts(std::move(all), [this, from](const proto::Receipt& receipt,
                                                     const absl::Status& why) {
    std::lock_guard lock(mutex_);
    const auto sender = from.find(receipt.key());
    const auto session = SessionId::FromBytes(receipt.session_id());
    if (stopping_ || sender == from.end() || !session.has_value()) return;
    const auto& [worker, identity, name, is_own] = sender->second;
    telemetry::LogError("receipt_refused", {{"worker", name},
                                            {"session", session->Hex()},
                                            {"message", why.ToString()}});
    if (FindWorker(worker) != nullptr)
      return OnOffence(worker, *session,
                       absl::IsAborted(why) ? telemetry::WorkerOffence::kReceiptConflict
                                            : telemetry::WorkerOffence::kReceipt);
    if (absl::IsAborted(why) && !is_own)
      SetAside(identity, name, std::string(kContradictsItself));
  });
}

// With a tick, however many workers say that leases have ended: each call is a write.
void CoreDriver::KeepReceiptsInTime() {
  if (std::exchange(keep_receipts_soon_, false) || ticks_ % kKeepReceiptsTicks == 0)
    KeepReceipts();
}

// ---- prices -------------------------------------------------------------------------------------

FleetView CoreDriver::Look() const {
  std::lock_guard lock(mutex_);
  return core_.Look(host_->Now());
}

absl::Status CoreDriver::SetPrices(std::shared_ptr<const PriceList> prices) {
  std::lock_guard lock(mutex_);
  for (const std::string& name : core_.ClassesInUse()) {
    if (prices->Find(name) == nullptr)
      return absl::FailedPreconditionError(
          absl::StrCat("the class ", name, " is in use, and is not in it"));
  }
  prices_ = std::move(prices);
  PricesSet event;
  for (const PriceClass& of : prices_->classes) event.prices.push_back({of.name, of.run, of.idle});
  Tell(event);
  return absl::OkStatus();
}

std::shared_ptr<const PriceList> CoreDriver::prices() const {
  std::lock_guard lock(mutex_);
  return prices_;
}

DeviceSlot CoreDriver::SlotOf(const proto::Device& device, bool is_own) const {
  DeviceSlot slot{NameToldBy(device.hardware_class()), device.memory_bytes(),
                  options_.price_per_hour};
  // Whoever says what is no rate has said nothing.
  const auto rate = [](double told) { return std::isfinite(told) && told > 0 ? told : 0; };
  slot.gflops = rate(device.rates().gflops());
  slot.memory_gb_per_s = rate(device.rates().memory_gb_per_s());
  if (is_own) {
    slot.price_class = kOwnMachines;
    slot.price_per_hour = {};
    return slot;
  }
  if (prices_ == nullptr) return slot;
  const PriceClass* const of = prices_->ClassOf(slot.hardware_class, slot.memory_bytes);
  if (of == nullptr) return slot;
  slot.price_class = of->name;
  slot.price_per_hour = of->run;
  slot.idle_prices = of->idle;
  return slot;
}

absl::Status CoreDriver::CheckOwnJoin(TenantId owner) const {
  std::lock_guard lock(mutex_);
  const auto has = std::count_if(workers_.begin(), workers_.end(), [&](const auto& entry) {
    return entry.second->owner == owner;
  });
  if (static_cast<size_t>(has) < kOwnWorkersMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("this account has ", has, " machines of its own here; limit ", kOwnWorkersMax));
}

// By which choices for sessions on several of its devices are predicted: its links as it measured
// them; of operations what the slowest reached in the rate check, or else what its class promises.
shard::DeviceSpeeds CoreDriver::SpeedsOf(const proto::Register& reg) const {
  double least_gflops = 0;
  for (const proto::Device& device : reg.devices()) {
    double gflops = device.rates().gflops();
    const PriceClass* const of =
        gflops > 0 || prices_ == nullptr
            ? nullptr
            : prices_->ClassOf(NameToldBy(device.hardware_class()), device.memory_bytes());
    if (of != nullptr) gflops = of->rates.gflops;
    if (gflops > 0) least_gflops = least_gflops == 0 ? gflops : std::min(least_gflops, gflops);
  }
  shard::DeviceSpeeds speeds =
      shard::SpeedsOfLink(static_cast<double>(reg.link_bytes_per_s()),
                          1e-9 * static_cast<double>(reg.link_message_ns()));
  speeds.operations_per_s = shard::OperationsPerS(1e9 * least_gflops);
  return speeds;
}

absl::StatusOr<bool> CoreDriver::CheckJoin(const proto::Register& reg) const {
  std::lock_guard lock(mutex_);
  if (prices_ == nullptr) return false;
  bool measure = false;
  for (int i = 0; i < reg.devices_size(); ++i) {
    const proto::Device& device = reg.devices(i);
    const std::string hardware = NameToldBy(device.hardware_class());
    const PriceClass* const of = prices_->ClassOf(hardware, device.memory_bytes());
    if (of == nullptr)
      return absl::FailedPreconditionError(
          absl::StrCat("device ", i, " (", hardware, ", ", device.memory_bytes(),
                       " bytes) is of no class in the gateway's price file"));
    if (!of->rates.any()) continue;
    const DeviceRates rates{device.rates().gflops(), device.rates().memory_gb_per_s()};
    if (device.has_rates()) {
      if (const absl::Status reached = CheckRates(*of, rates); !reached.ok())
        return absl::FailedPreconditionError(
            absl::StrCat("device ", i, " falls short: ", std::string(reached.message())));
    } else if (!reg.measures()) {
      return absl::FailedPreconditionError(
          absl::StrCat("device ", i, ": the class ", of->name,
                       " promises what its devices reach, and this worker is too old to measure"));
    }
    measure |= !device.has_rates();
  }
  return measure;
}

std::set<std::string> CoreDriver::NodesHere() const {
  std::lock_guard lock(mutex_);
  std::set<std::string> here;
  for (const auto& [id, worker] : workers_)
    if (!worker->node_serial.empty()) here.insert(worker->node_serial);
  return here;
}

std::vector<WorkerId> CoreDriver::WorkersOfNode(const std::string& serial) const {
  std::vector<WorkerId> those;
  for (const auto& [id, worker] : workers_)
    if (!serial.empty() && worker->node_serial == serial) those.push_back(id);
  return those;
}

bool CoreDriver::DrainNode(const std::string& serial) {
  std::lock_guard lock(mutex_);
  const std::vector<WorkerId> those = WorkersOfNode(serial);
  TellProgress();
  for (const WorkerId id : those) Tell(WorkerDraining{id});
  return !those.empty();
}

bool CoreDriver::RestartNode(const std::string& serial, const std::string& why) {
  std::lock_guard lock(mutex_);
  const std::vector<WorkerId> those = WorkersOfNode(serial);
  for (const WorkerId id : those) {
    proto::GatewayCommand command;
    command.mutable_drain()->set_reason(why);
    command.mutable_drain()->set_restart(true);
    workers_.at(id)->endpoint->Send(std::move(command));
  }
  return !those.empty();
}

bool CoreDriver::SetNodeAside(const std::string& serial, const std::string& why) {
  std::lock_guard lock(mutex_);
  const std::vector<WorkerId> those = WorkersOfNode(serial);
  for (const WorkerId id : those)
    if (const Worker* const worker = FindWorker(id); worker != nullptr) SetAside(id, why);
  return !those.empty();
}

void CoreDriver::OnJoinRefused(const std::string& name, const absl::Status& why) {
  observer_->OnWorkerRefused(NameToldBy(name), why);
}

absl::Status CoreDriver::CheckClass(const proto::Open& open) const {
  if (open.device_class().empty() || open.device_class() == kOwnMachines)
    return absl::OkStatus();
  if (prices_ == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("class = \"", absl::CHexEscape(open.device_class()),
                     "\": this gateway has no classes of devices; leave it out"));
  if (prices_->Find(open.device_class()) != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("class = \"", absl::CHexEscape(open.device_class()),
                   "\": this gateway has ", prices_->Names()));
}

}  // namespace outboard::gateway
