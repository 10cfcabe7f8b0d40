// Invariants
//   R1  A frame passes only from the client and the executor that the relay has now, and only with
//       the epoch of the last Connect.
//   R2  No byte of a graph is passed on before the whole is verified (OnGraph); a partially
//       received graph is discarded with its stream.
//   R3  A paused side is resumed once: when the other side is writable, or when that disconnects.
//   R4  While the session can be recovered, a rank's kernel_uses has those that a replacement of it
//       must replay: since the last snapshot, in bytes that fit into an Open.
//   R5  busy() is true exactly while an item of this epoch was sent and is not done.
//   R6  Every rank gets the same items in the same order: a frame passes only while all are there,
//       and the client hears nothing of an epoch before all have opened it.
//   R7  Ranks that begin with a snapshot have all applied the same items; they are told of the next
//       one between the same two items. Where there are ranks, durable_seq is the gateway's to say:
//       it has the parts of all.
//   R8  A client that enters another one's session begins behind an item that all ranks have
//       applied, of which it is known how the arrays lie behind it; of later items of the client
//       before, no rank has any.
//   R9  Where something was thrown while frames passed, one rank may have what another lacks:
//       before anybody else has the lock, is_broken_ is set. Then no frame passes any more, whoever
//       is connected, and whoever called ends the session.
//
//   alone --SetExecutor--> has an executor --Connect--> connected, of a new epoch
//   connected --Connect (another client, or this one again)--> connected, of a new epoch
//   connected --DropClient--> has an executor: its frames are dropped, and sent again after Ack
//   connected --DropExecutor--> has a client: its frames are dropped, except Close
#include "gateway/data_path/relay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/base/thrown.h"
#include "gateway/base/token.h"
#include "telemetry/counters.h"
#include "wire/limits.h"
#include "wire/retryable.h"
#include "wire/status_code.h"

namespace outboard::gateway {

namespace {
constexpr size_t kDeviceClassBytesMax = 64;  // of a label
// A device cannot have worked for longer than there was time, but two clocks differ, and what was
// measured before comes at once.
constexpr uint64_t kDeviceTimeFactor = 2, kDeviceTimeSlackUs = 10'000'000;

// Whatever its executor says of them.
void SayPrices(const EpochStart& start, proto::Opened& opened) {
  const auto micros = [](MicroUsd price) { return static_cast<uint64_t>(price.value); };
  const bool has_class = !start.price_class.empty();
  opened.set_price_class(start.price_class);
  opened.set_held_per_hour_micro_usd(
      has_class ? micros(start.idle_prices.held.value_or(start.price_per_hour)) : 0);
  opened.set_parked_per_hour_micro_usd(micros(start.idle_prices.parked));
  opened.set_stored_per_hour_micro_usd(micros(start.idle_prices.stored));
}

}  // namespace

Relay::Relay(SessionId session, TenantId tenant, BlobUses* blobs, GraphAdmission* admission,
             RelayTrace::Clock clock, DriverObserver* observer, uint32_t ranks)
    : session_(session),
      tenant_(tenant),
      blobs_(blobs),
      admission_(admission),
      observer_(observer),
      clock_(clock),
      trace_(std::move(clock)),
      executors_(ranks),
      answers_(ranks > 1 ? std::make_unique<RankAnswers>(ranks) : nullptr),
      asks_(ranks) {}

// ---- the driver ---------------------------------------------------------------------------------

void Relay::SetExecutor(ExecutorEndpoint* executor, uint32_t rank) {
  std::lock_guard lock(mutex_);
  executors_.at(rank).Replace(executor);
}

Relay::RankStream* Relay::Find(const ExecutorEndpoint* executor) {
  const auto found =
      std::find_if(executors_.begin(), executors_.end(),
                   [&](const RankStream& rank) { return rank.endpoint == executor; });
  return found == executors_.end() ? nullptr : &*found;
}

bool Relay::has_all() const {
  return std::all_of(executors_.begin(), executors_.end(),
                     [](const RankStream& rank) { return rank.endpoint != nullptr; });
}

// R6. To the last without a copy.
void Relay::SendToAll(proto::ClientFrame frame) {
  if (is_broken_) return;
  const BreaksIfThrown breaks(*this);
  for (size_t rank = 0; rank + 1 < executors_.size(); ++rank)
    executors_[rank].endpoint->Send(frame);
  executors_.back().endpoint->Send(std::move(frame));
}

void Relay::Break() noexcept {
  is_broken_ = true;
  try {
    if (failure_.ok()) failure_ = AfterThrown("a frame of the session");
  } catch (...) {
    // No memory for the text. Whoever caught the first exception has another.
  }
}

void Relay::Connect(ClientEndpoint* client, const EpochStart& start, const proto::Open& open) {
  std::lock_guard lock(mutex_);
  if (is_broken_) return;
  // The client before this one drains no more.
  ResumeExecutors();
  client_ = client;
  client_paused_ = false;
  if (answers_ != nullptr) answers_->Restart();
  is_entered_ = open.is_new_client();
  if (runs_ != nullptr) {
    runs_->Restart();
    runs_->LimitMemory(open.memory_bytes_max());
    generation_ = runs_->BeginGeneration();
  }
  opened_ = false;
  start_ = start;
  DropGraph();
  trace_.Begin(open.trace());
  is_fresh_ = std::exchange(replays_, false);
  // Of a client before this one, or of an executor that knows nothing of them. One that comes back
  // does not repeat what its executor has taken up.
  if (open.is_new_client() || is_fresh_) {
    saves_.clear();
    has_unseen_ = false;
  }
  if (answers_ != nullptr) {
    asks_.Begin(start.snapshot_ms, clock_().ns / 1'000'000);
    asks_.Durable(start.snapshot_seq);
  }
  if (!has_all()) return;  // one has just gone; the driver will hear of it
  for (uint32_t rank = 0; rank < ranks(); ++rank) {
    RankStream& to = executors_[rank];
    proto::ClientFrame frame;
    frame.set_epoch(start_.epoch);
    proto::Open& out = *frame.add_items()->mutable_open();
    out = open;
    out.clear_resume_token();
    out.set_session_id(session_.Bytes());
    out.set_snapshot_ms(answers_ == nullptr ? start.snapshot_ms : 0);
    out.set_snapshots_when_told(answers_ != nullptr && start.snapshot_ms > 0);
    out.set_snapshot_root(PartOfRoot(start.snapshot_root, rank, ranks()));
    // A client whose worker was replaced on its live stream said long ago which kernel uses it
    // knew; a gateway that was started again knows what it says. Of those of ranks it never hears.
    if (answers_ != nullptr || (is_fresh_ && !to.kernel_uses.empty())) {
      out.clear_kernel_uses();
      // Ranks that share work change kernels together. The client's values were computed with what
      // rank 0 has said; another may have been lost before it said so.
      const KernelUses& uses = runs_ != nullptr ? executors_[0].kernel_uses : to.kernel_uses;
      for (const auto& [key, entry] : uses) *out.add_kernel_uses() = entry;
    }
    if (answers_ == nullptr && to.kernel_uses.empty()) NoteKernelUses(to, open.kernel_uses());
    to.endpoint->Send(std::move(frame));
  }
}

void Relay::DropClient(ClientEndpoint* client) {
  std::lock_guard lock(mutex_);
  if (client != nullptr && client_ != client) return;
  ResumeClient();  // another relay may be its next
  client_ = nullptr;
  if (runs_ != nullptr) generation_ = runs_->BeginGeneration();
  DropGraph();
  ResumeExecutors();
}

// R2.
void Relay::DropGraph() {
  graph_id_.clear();
  graph_bytes_ = {};
  graph_held_.Clear();
}

void Relay::DropExecutor(ExecutorEndpoint* executor) {
  std::lock_guard lock(mutex_);
  if (RankStream* const rank = Find(executor); rank != nullptr) {
    rank->Replace(nullptr);
    ResumeClient();  // what it says goes nowhere, but its Close must be heard
  }
}

void Relay::ResumeClient() {
  if (client_ != nullptr && std::exchange(client_paused_, false)) client_->ResumeReading();
}

void Relay::ResumeExecutors() {
  for (RankStream& rank : executors_)
    if (std::exchange(rank.paused, false) && rank.endpoint != nullptr)
      rank.endpoint->ResumeReading();
}

bool Relay::has_executor(uint32_t rank) const {
  std::lock_guard lock(mutex_);
  return rank < executors_.size() && executors_[rank].endpoint != nullptr;
}

bool Relay::awaits_saved() const {
  std::lock_guard lock(mutex_);
  return !saves_.empty();
}

bool Relay::awaits_saved(std::string_view name) const {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(saves_, [&](const auto& save) { return save.second == name; });
}

bool Relay::has_open_client() const {
  std::lock_guard lock(mutex_);
  return client_ != nullptr && opened_;
}

bool Relay::has_unseen_items() const {
  std::lock_guard lock(mutex_);
  return has_unseen_;
}

bool Relay::is_opening() const {
  std::lock_guard lock(mutex_);
  return client_ != nullptr && !opened_;
}

bool Relay::has_opened() const {
  std::lock_guard lock(mutex_);
  return opened_;
}

bool Relay::is_streaming() const {
  std::lock_guard lock(mutex_);
  return std::any_of(executors_.begin(), executors_.end(),
                     [](const RankStream& rank) { return rank.paused; });
}

void Relay::RequestSnapshot() {
  std::lock_guard lock(mutex_);
  if (!has_all()) return;
  if (answers_ != nullptr) {
    asks_.RequestNow();
    return AskForSnapshotIfDue();
  }
  proto::ClientFrame frame;
  frame.set_epoch(start_.epoch);
  frame.add_items()->mutable_take_snapshot();
  SendToAll(std::move(frame));
}

void Relay::EndExecutor() {
  std::lock_guard lock(mutex_);
  for (const RankStream& rank : executors_)
    if (rank.endpoint != nullptr) rank.endpoint->End(absl::OkStatus());
}

void Relay::SetValues(ValuesEndpoint* values) {
  std::lock_guard lock(mutex_);
  values_ = values;
  ResumeExecutors();
}

void Relay::SetBill(const Bill& bill) {
  std::lock_guard lock(mutex_);
  bill_ = bill;
}

uint64_t Relay::epoch() const {
  std::lock_guard lock(mutex_);
  return start_.epoch;
}

absl::Status Relay::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<telemetry::WorkerOffence> Relay::TakeOffence() {
  std::lock_guard lock(mutex_);
  return std::exchange(offence_, std::nullopt);
}

void Relay::SendEnd(ClientEndpoint& client, const absl::Status& why, const Bill& bill,
                    uint64_t epoch, uint64_t through_seq, bool is_kept,
                    const proto::LedgerHead* head) {
  proto::ServerFrame frame;
  frame.set_epoch(epoch);
  proto::Done& done = *frame.add_items()->mutable_done();
  done.set_through_seq(through_seq);
  done.set_seconds_billed(static_cast<uint64_t>(bill.ms / 1000));
  done.set_billed_ms(static_cast<uint64_t>(bill.ms));
  done.set_cost_micro_usd(static_cast<uint64_t>(bill.amount.value));
  if (head != nullptr) *done.mutable_head() = *head;
  if (!why.ok()) {
    proto::Failed& failed = *frame.add_items()->mutable_failed();
    failed.set_code(static_cast<uint32_t>(why.code()));
    failed.set_message(why.message().data(), why.message().size());
    failed.set_retryable(wire::IsRetryable(wire::FailureOf::kSession, why.code()));
    failed.set_state_is_kept(is_kept);
  }
  client.SendLast(std::move(frame), why);
}

void Relay::ExecutorWritable(ExecutorEndpoint* executor) {
  std::lock_guard lock(mutex_);
  if (RankStream* const rank = Find(executor); rank != nullptr) rank->full = false;
  const bool is_full = std::any_of(executors_.begin(), executors_.end(),
                                   [](const RankStream& rank) { return rank.full; });
  if (!is_full) ResumeClient();
}

// ---- executor to client -------------------------------------------------------------------------

void Relay::FromExecutor(ExecutorEndpoint* executor, proto::ServerFrame frame, bool& pause) {
  const uint64_t came_ns = trace_.Now();
  std::lock_guard lock(mutex_);
  pause = false;
  if (is_broken_) return;
  const BreaksIfThrown breaks(*this);
  RankStream* const from = Find(executor);
  if (from == nullptr) return;
  // Epochs begin here: an executor has heard of none that is later.
  if (start_.epoch != 0 && frame.epoch() > start_.epoch)
    offence_ = telemetry::WorkerOffence::kFutureEpoch;
  if (start_.epoch == 0) NoteDone(frame);
  if (frame.epoch() != start_.epoch) return;
  if (answers_ != nullptr && !Merge(*from, frame)) return;
  for (proto::ServerItem& item : *frame.mutable_items()) {
    if (item.has_done())
      OnDone(*from, *item.mutable_done(), came_ns);
    else if (item.has_failed())
      OnFailed(*item.mutable_failed());
    else if (item.has_saved())
      saves_.erase(item.saved().seq());
    else if (item.has_kept() && runs_ != nullptr)
      runs_->DescribeWhole(*item.mutable_kept());
    else if (item.has_opened())
      OnOpened(*item.mutable_opened());
  }
  if (client_ == nullptr) return;  // the executor keeps what matters until an Ack
  if (frame.items_size() > 0) client_->Send(std::move(frame));
  // One pause for one ClientWritable: what the executor's side had read already still comes.
  const bool waits = answers_ != nullptr && !answers_->all_opened();  // for other ranks
  if (!from->paused &&
      (waits || client_->AskWritable() || (values_ != nullptr && values_->AskWritable())))
    pause = from->paused = true;
}

void Relay::OnDone(RankStream& from, proto::Done& done, uint64_t came_ns) {
  if (opened_ && done.through_seq() > sent_seq_) {  // R5
    offence_ = telemetry::WorkerOffence::kUnsentItem;
    done.set_through_seq(sent_seq_);
  }
  if (done.through_seq() > done_seq_) {
    done_seq_ = done.through_seq();
    if (runs_ != nullptr && !start_.recoverable) runs_->Done(done_seq_);
  }
  FillDone(done);
  if (answers_ == nullptr) {
    NoteKernelUses(from, done.kernel_uses());
    ForgetKernelUses(done.durable_seq());
  }
  trace_.Down(came_ns, done);
  if (values_ != nullptr && done.values_size() > 0) SendLarge(done);
}

void Relay::OnFailed(proto::Failed& failed) {
  failed.set_worker(start_.worker);
  if (runs_ != nullptr) NameClientsNode(failed);
  saves_.erase(failed.seq());
  if (failed.seq() == 0) {
    failure_ = absl::Status(wire::CodeFromWire(failed.code()), failed.message());
    return;
  }
  telemetry::Count(telemetry::Metric::kItemFailures);
  if (observer_ != nullptr)
    observer_->OnRunFailed({session_, tenant_, ""}, failed.seq(), failed.op(),
                           wire::CodeFromWire(failed.code()));
}

// Nodes of a graph that was written for the ranks are not the client's.
void Relay::NameClientsNode(proto::Failed& failed) {
  const auto original = runs_->OriginalOf(failed.graph_id());
  if (!original.has_value()) return;
  failed.set_graph_id(original->graph_id);
  failed.clear_op();
  failed.clear_node();
  if (!original->refused) return;
  failed.set_op(original->refused->op);
  failed.set_node(original->refused->index);
}

void Relay::OnOpened(proto::Opened& opened) {
  opened.set_session_id(session_.Bytes());
  opened.set_resume_token(BytesOf(start_.resume_token));
  opened.set_recoverable(start_.recoverable);
  opened.set_worker(start_.worker);
  opened.set_name(start_.name);
  opened.set_price_per_hour_micro_usd(static_cast<uint64_t>(start_.price_per_hour.value));
  SayPrices(start_, opened);
  opened.clear_max_cost_micro_usd();
  if (start_.max_cost.has_value())
    opened.set_max_cost_micro_usd(static_cast<uint64_t>(start_.max_cost->value));
  NoteDevice(opened);
  // What an earlier epoch sent and the executor did not apply is forgotten there; the client
  // sends it again.
  if (std::exchange(opened_, true)) return;
  if (!is_fresh_ && !is_entered_ && opened.applied_seq() > sent_seq_) has_unseen_ = true;
  sent_seq_ = done_seq_ = opened.applied_seq();
}

// Makes of a rank's frame what the session says. False: the ranks have parted, and the session
// ends as soon as their streams have.
bool Relay::Merge(RankStream& from, proto::ServerFrame& frame) {
  const bool had_opened = answers_->all_opened();
  const auto rank = static_cast<uint32_t>(&from - executors_.data());
  for (const proto::ServerItem& item : frame.items()) {
    if (!item.has_done()) continue;
    NoteKernelUses(from, item.done().kernel_uses());
    asks_.Missed(rank, item.done().snapshot_missed());
  }
  absl::Status status = answers_->Merge(rank, sent_seq_, frame);
  const bool opens = !had_opened && answers_->all_opened();
  if (opens && HaveParted())
    status.Update(absl::InternalError("the ranks do not begin with the same item"));
  const bool lost_count = opens && status.ok() && is_entered_ && !MayEnter();
  if (lost_count && is_fresh_)
    status = absl::DataLossError(
        "nobody knows how the arrays of the session's last snapshot lie on its devices");
  if (opens) asks_.Sent(answers_->least_done(), 0);
  if (answers_->TakeLie()) offence_ = telemetry::WorkerOffence::kUnsentItem;
  if (!status.ok() || lost_count) {
    failure_ = status;  // OK: as if a rank were lost, all begin again with their last snapshot
    for (const RankStream& each : executors_)
      if (each.endpoint != nullptr) each.endpoint->End(absl::OkStatus());
    return false;
  }
  if (opens) ResumeExecutors();
  return true;
}

// Of an executor that outlived the gateway before this one, whose client is not back: its frames go
// nowhere, but what it has applied is to be in a snapshot before it is put away.
void Relay::NoteDone(const proto::ServerFrame& frame) {
  for (const proto::ServerItem& item : frame.items())
    done_seq_ = std::max<uint64_t>(done_seq_, item.done().through_seq());
}

// What an executor says accumulates from the start of its session. Of one that served it before
// this relay, what came before is counted already.
void Relay::NoteDevice(const proto::Opened& opened) {
  if (!device_us_ && opened.applied_seq() == 0) {
    device_us_ = believed_from_us_ = 0;
    believed_since_ = clock_();
  }
  std::string name = opened.device().hardware_class().substr(0, kDeviceClassBytesMax);
  for (char& c : name)
    if (c < 0x21 || c > 0x7e) c = '_';
  device_class_ = telemetry::DeviceClassLabel(name.empty() ? "unknown" : name);
}

// The first figure of a session that another executor or gateway began is believed as it is.
uint64_t Relay::BelievedDeviceUs(uint64_t device_us) {
  const MonoTime now = clock_();
  if (!device_us_ || believed_since_.ns == 0) {
    believed_since_ = now;
    believed_from_us_ = device_us_.value_or(device_us);
  }
  const auto past_us =
      static_cast<uint64_t>(std::max<int64_t>(now.ns - believed_since_.ns, 0)) / 1000;
  const uint64_t most =
      believed_from_us_ + (past_us * kDeviceTimeFactor + kDeviceTimeSlackUs) * executors_.size();
  if (device_us <= most || most < believed_from_us_) return device_us;
  offence_ = telemetry::WorkerOffence::kDeviceTime;
  return most;
}

void Relay::NoteDeviceTime(uint64_t device_us) {
  if (device_us_ && device_us > *device_us_)
    telemetry::CountAt(telemetry::Metric::kDeviceTime, device_class_, device_us - *device_us_);
  device_us_ = device_us;
}

void Relay::FillDone(proto::Done& done) {
  done.set_cost_micro_usd(static_cast<uint64_t>(bill_.amount.value));
  done.set_seconds_billed(static_cast<uint64_t>(bill_.ms / 1000));
  done.set_billed_ms(static_cast<uint64_t>(bill_.ms));
  done.set_device_time_us(BelievedDeviceUs(done.device_time_us()));
  NoteDeviceTime(done.device_time_us());
  done.clear_snapshot_missed();
  done.clear_head();  // the gateway's alone
  if (heads_ != nullptr)
    if (const auto head = heads_->Of(tenant_); head != nullptr) *done.mutable_head() = *head;
  if (answers_ != nullptr) done.set_durable_seq(asks_.durable_seq());  // R7
}

// A Done may hold pieces of several values; they keep their order on either stream.
void Relay::SendLarge(proto::Done& done) {
  proto::ServerFrame large;
  large.set_epoch(start_.epoch);
  proto::Done& moved = *large.add_items()->mutable_done();
  auto& values = *done.mutable_values();
  int kept = 0;
  for (int i = 0; i < values.size(); ++i) {
    if (values[i].total_bytes() > wire::kInlineValueBytesMax) {
      moved.add_values()->Swap(&values[i]);
    } else {
      values.SwapElements(kept++, i);
    }
  }
  if (kept == values.size()) return;
  values.DeleteSubrange(kept, values.size() - kept);
  values_->Send(std::move(large));
}

void Relay::ClientWritable() {
  std::lock_guard lock(mutex_);
  ResumeExecutors();
}

}  // namespace outboard::gateway
