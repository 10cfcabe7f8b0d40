#include "runtime/collective/loopback.h"

#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace outboard::collective {
namespace {

// One group: its count, its stride, and the rank at place 0.
using GroupKey = std::tuple<int64_t, int64_t, int64_t>;

GroupKey GroupOf(const Member& member, const BlockTransfer& transfer) {
  const int64_t place = member.rank / transfer.stride % transfer.count;
  return {transfer.count, transfer.stride, member.rank - place * transfer.stride};
}

// What all ranks share. Invariants, under the lock:
//   1. `first_cause` is set once; from then on nobody begins to copy.
//   2. `copying` counts the ranks that read partners' memory outside of the lock.
//   3. An error is returned to a rank only at copying == 0: its memory is its own again.
class Hub {
 public:
  // The bucket of one rank, at its place. Groups meet in the order in which each started.
  void Offer(const GroupKey& group, int64_t number, int64_t place,
             std::span<const BlockTransfer> bucket) {
    const std::lock_guard lock(mutex_);
    Meeting& meeting = meetings_[{group, number}];
    meeting.offers.resize(std::get<0>(group));
    meeting.offers[place] = bucket;
    ++meeting.arrived;
    changed_.notify_all();
  }

  absl::Status Take(const GroupKey& group, int64_t number, int64_t place) {
    std::unique_lock lock(mutex_);
    Meeting& meeting = meetings_.at({group, number});
    const auto count = static_cast<int64_t>(meeting.offers.size());
    changed_.wait(lock, [&] { return meeting.arrived == count || first_cause_.has_value(); });
    if (!first_cause_.has_value()) {
      if (const absl::Status same = CheckSame(meeting); !same.ok()) {
        SetCause(same);
      } else {
        ++copying_;
        lock.unlock();
        Copy(meeting, place);
        lock.lock();
        --copying_;
        ++meeting.taken;
        changed_.notify_all();
      }
    }
    changed_.wait(lock, [&] {
      return meeting.taken == count || (first_cause_.has_value() && copying_ == 0);
    });
    // All have what they wanted: an abort that came after that does not concern this transfer.
    if (meeting.taken < count) return *first_cause_;
    if (++meeting.gone == count) meetings_.erase({group, number});
    return absl::OkStatus();
  }

  void Abort(int64_t rank, const absl::Status& cause) {
    std::unique_lock lock(mutex_);
    SetCause(AbortedBy(rank, cause));
    changed_.wait(lock, [&] { return copying_ == 0; });
  }

  absl::Status status() const {
    const std::lock_guard lock(mutex_);
    return first_cause_.value_or(absl::OkStatus());
  }

 private:
  struct Meeting {
    std::vector<std::span<const BlockTransfer>> offers;  // by place
    int64_t arrived = 0, taken = 0, gone = 0;            // ranks
  };

  void SetCause(const absl::Status& cause) {
    if (!first_cause_.has_value()) first_cause_ = cause;
    changed_.notify_all();
  }

  static absl::Status CheckSame(const Meeting& meeting) {
    const std::span<const BlockTransfer> first = meeting.offers[0];
    for (size_t place = 1; place < meeting.offers.size(); ++place) {
      const std::span<const BlockTransfer> other = meeting.offers[place];
      bool same = other.size() == first.size();
      for (size_t i = 0; same && i < first.size(); ++i)
        same = other[i].pattern == first[i].pattern && other[i].root == first[i].root &&
               other[i].send.size() == first[i].send.size();
      if (!same)
        return absl::InternalError(
            absl::StrCat("place ", place, " started another transfer than place 0 of its group: ",
                         ToString(other[0].pattern), " of ", other[0].send.size(), " bytes, ",
                         ToString(first[0].pattern), " of ", first[0].send.size()));
    }
    return absl::OkStatus();
  }

  static void Copy(const Meeting& meeting, int64_t place) {
    for (size_t i = 0; i < meeting.offers[place].size(); ++i) {
      const BlockTransfer& mine = meeting.offers[place][i];
      const auto bytes = static_cast<size_t>(mine.block_bytes());
      if (bytes == 0) continue;
      if (mine.pattern == TransferPattern::kBroadcast) {
        std::memcpy(mine.receive.data(), meeting.offers[mine.root][i].send.data(), bytes);
        continue;
      }
      for (size_t from = 0; from < meeting.offers.size(); ++from) {
        const char* block = meeting.offers[from][i].send.data();
        if (mine.pattern == TransferPattern::kAllToAll) block += static_cast<size_t>(place) * bytes;
        std::memcpy(mine.receive.data() + from * bytes, block, bytes);
      }
    }
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<GroupKey, int64_t>, Meeting> meetings_;
  std::optional<absl::Status> first_cause_;
  int64_t copying_ = 0;
};

class Loopback final : public Collective {
 public:
  Loopback(Member member, std::shared_ptr<Hub> hub)
      : Collective(std::move(member)), hub_(std::move(hub)) {}
  ~Loopback() override { hub_->Abort(member().rank, absl::UnavailableError("its session ended")); }

  absl::StatusOr<TransferId> Start(std::span<const BlockTransfer> bucket) override {
    for (const BlockTransfer& transfer : bucket)
      if (absl::Status fits = CheckTransfer(member(), transfer); !fits.ok()) return fits;
    if (absl::Status going = status(); !going.ok()) return going;
    const GroupKey group = GroupOf(member(), bucket[0]);
    const TransferId id{next_id_++};
    Pending& pending = pending_[id];
    pending = {group, started_[group]++, {bucket.begin(), bucket.end()}};
    hub_->Offer(group, pending.number, PlaceIn(group), pending.bucket);
    return id;
  }

  absl::Status Wait(TransferId id) override {
    const auto found = pending_.find(id);
    if (found == pending_.end())
      return absl::InvalidArgumentError("a transfer that was not started, or was waited for");
    const Pending& pending = found->second;
    const absl::Status status = hub_->Take(pending.group, pending.number, PlaceIn(pending.group));
    // After an abort a bucket stays: partners may look at its sizes, though not at its bytes.
    if (status.ok()) pending_.erase(found);
    return status;
  }

  void Abort(const absl::Status& cause) override { hub_->Abort(member().rank, cause); }
  absl::Status status() const override { return hub_->status(); }

 private:
  struct Pending {
    GroupKey group;
    int64_t number = 0;  // of the group's transfers
    std::vector<BlockTransfer> bucket;
  };

  int64_t PlaceIn(const GroupKey& group) const {
    return (member().rank - std::get<2>(group)) / std::get<1>(group);
  }

  const std::shared_ptr<Hub> hub_;
  int64_t next_id_ = 0;
  std::map<GroupKey, int64_t> started_;
  std::map<TransferId, Pending> pending_;
};

}  // namespace

std::vector<std::unique_ptr<Collective>> MakeLoopback(const std::vector<int64_t>& mesh,
                                                      uint64_t epoch) {
  const auto hub = std::make_shared<Hub>();
  std::vector<std::unique_ptr<Collective>> ranks;
  for (int64_t rank = 0; rank < Member{0, mesh, epoch}.ranks(); ++rank)
    ranks.push_back(std::make_unique<Loopback>(Member{rank, mesh, epoch}, hub));
  return ranks;
}

}  // namespace outboard::collective
