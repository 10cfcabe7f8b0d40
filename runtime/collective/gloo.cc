#include "runtime/collective/gloo.h"

#include <arpa/inet.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::collective {
namespace {

using std::chrono::milliseconds;

// A partner's cause is set before its connections close, so it is there when they have.
constexpr milliseconds kCausePatience{200};
constexpr size_t kCauseBytesMax = 1024;

// Gloo's keys and values, in the epoch of the group. Gloo asks for what it has seen set already, or
// waits; its numbers of ranks are the last part of a key.
class Store final : public gloo::rendezvous::Store {
 public:
  Store(Rendezvous* rendezvous, uint64_t epoch, milliseconds patience)
      : rendezvous_(rendezvous), epoch_(epoch), patience_(patience) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    Throw(rendezvous_->Set(KeyOf(key), {data.begin(), data.end()}));
  }
  std::vector<char> get(const std::string& key) override {
    const absl::StatusOr<std::string> value = rendezvous_->Get(KeyOf(key), patience_);
    Throw(value.status());
    return {value->begin(), value->end()};
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, patience_); }
  void wait(const std::vector<std::string>& keys, const milliseconds&) override {
    for (const std::string& key : keys) Throw(rendezvous_->Get(KeyOf(key), patience_).status());
  }

  // What went wrong, of an exception that came out of this.
  const absl::Status& status() const { return status_; }

 private:
  std::string KeyOf(const std::string& key) const { return absl::StrCat(epoch_, "/", key); }
  void Throw(const absl::Status& status) {
    if (status.ok()) return;
    status_ = status;
    throw gloo::Exception(std::string(status.message()));
  }

  Rendezvous* const rendezvous_;
  const uint64_t epoch_;
  const milliseconds patience_;
  absl::Status status_;
};

using GroupKey = std::pair<int64_t, int64_t>;  // count and stride

class GlooCollective final : public Collective {
 public:
  GlooCollective(const GlooOptions& options, std::shared_ptr<gloo::rendezvous::Context> context)
      : Collective(options.member),
        rendezvous_(options.rendezvous),
        patience_(options.patience),
        context_(std::move(context)) {}

  ~GlooCollective() override {
    bool under_way = false;
    {
      const std::lock_guard lock(mutex_);
      under_way = !pending_.empty();
    }
    if (under_way) Abort(absl::UnavailableError("its session ended"));
    Close();
  }

  absl::StatusOr<TransferId> Start(std::span<const BlockTransfer> bucket) override {
    for (const BlockTransfer& transfer : bucket)
      if (absl::Status fits = CheckTransfer(member(), transfer); !fits.ok()) return fits;
    if (absl::Status going = status(); !going.ok()) return going;
    Pending pending;
    try {
      for (const BlockTransfer& transfer : bucket) Begin(transfer, pending);
    } catch (const std::exception& error) {
      return Failed(error);
    }
    const std::lock_guard lock(mutex_);
    const TransferId id{next_id_++};
    pending_.emplace(id, std::move(pending));
    return id;
  }

  absl::Status Wait(TransferId id) override {
    Pending pending;
    {
      const std::lock_guard lock(mutex_);
      const auto found = pending_.find(id);
      if (found == pending_.end())
        return absl::InvalidArgumentError("a transfer that was not started, or was waited for");
      pending = std::move(found->second);
      pending_.erase(found);
    }
    try {
      for (Moved& moved : pending) {
        for (int i = 0; i < moved.receives; ++i)
          if (!moved.receive->waitRecv(patience_)) throw gloo::Exception("it was aborted");
        for (int i = 0; i < moved.sends; ++i)
          if (!moved.send->waitSend(patience_)) throw gloo::Exception("it was aborted");
      }
    } catch (const std::exception& error) {
      const absl::Status cause = Failed(error);
      return cause;
    }
    return absl::OkStatus();
  }

  void Abort(const absl::Status& cause) override { SetCause(cause); }

  absl::Status status() const override {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  // One transfer's buffers, registered with Gloo, and how often to wait for each.
  struct Moved {
    std::unique_ptr<gloo::transport::UnboundBuffer> send, receive;
    int sends = 0, receives = 0;
  };
  using Pending = std::vector<Moved>;

  void Begin(const BlockTransfer& transfer, Pending& pending) {
    const int64_t count = transfer.count, rank = member().rank,
                  place = rank / transfer.stride % count;
    const auto rank_at = [&](int64_t p) {
      return static_cast<int>(rank + (p - place) * transfer.stride);
    };
    const auto block = static_cast<size_t>(transfer.block_bytes());
    // Unique among transfers under way: the group's number of it, under the group.
    const uint64_t slot = (static_cast<uint64_t>(count) << 48) |
                          (static_cast<uint64_t>(transfer.stride) << 32) |
                          (numbers_[{count, transfer.stride}]++ & 0xFFFF'FFFF);
    if (block == 0) return;
    Moved moved;
    moved.send = context_->createUnboundBuffer(const_cast<char*>(transfer.send.data()),
                                               transfer.send.size());
    moved.receive = context_->createUnboundBuffer(transfer.receive.data(), transfer.receive.size());
    const bool broadcast = transfer.pattern == TransferPattern::kBroadcast;
    const auto send_offset = [&](int64_t to) {
      return transfer.pattern == TransferPattern::kAllToAll ? static_cast<size_t>(to) * block : 0;
    };
    const auto receive_offset = [&](int64_t from) {
      return broadcast ? 0 : static_cast<size_t>(from) * block;
    };
    if (!broadcast || place == transfer.root)
      std::memcpy(transfer.receive.data() + receive_offset(place),
                  transfer.send.data() + send_offset(place), block);
    for (int64_t i = 1; i < count; ++i) {  // each rank begins with another partner
      const int64_t from = (place + count - i) % count, to = (place + i) % count;
      if (!broadcast || from == transfer.root) {
        moved.receive->recv(rank_at(from), slot, receive_offset(from), block);
        ++moved.receives;
      }
      if (!broadcast || place == transfer.root) {
        moved.send->send(rank_at(to), slot, send_offset(to), block);
        ++moved.sends;
      }
    }
    pending.push_back(std::move(moved));
  }

  // What this rank returns for a failure of Gloo: the cause of the rank that began it.
  absl::Status Failed(const std::exception& error) {
    SetCause(absl::UnavailableError(error.what()));
    return status();
  }

  // The first rank that sets the cause decides it for all.
  void SetCause(const absl::Status& mine) {
    if (!status().ok()) return Close();
    const std::string key = absl::StrCat(member().epoch, "/cause");
    const std::string said = absl::StrCat(member().rank, " ", mine.message());
    rendezvous_->Set(key, said.substr(0, kCauseBytesMax)).IgnoreError();
    const absl::StatusOr<std::string> first = rendezvous_->Get(key, kCausePatience);
    int64_t rank = member().rank;
    absl::Status cause = mine;
    if (first.ok()) {
      const size_t space = std::min(first->find(' '), first->size());
      if (absl::SimpleAtoi(first->substr(0, space), &rank))
        cause = absl::UnavailableError(first->substr(std::min(space + 1, first->size())));
    }
    {
      const std::lock_guard lock(mutex_);
      if (cause_.ok()) cause_ = AbortedBy(rank, cause);
    }
    Close();
  }

  // Ends what is under way: a Wait of another thread gets an exception. Returns when no connection
  // touches a buffer any more.
  void Close() {
    const std::lock_guard lock(closing_);
    if (std::exchange(closed_, true)) return;
    context_->closeConnections();
  }

  Rendezvous* const rendezvous_;
  const milliseconds patience_;
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  std::map<GroupKey, uint64_t> numbers_;  // of the transfers of a group
  std::mutex closing_;
  bool closed_ = false;
  mutable std::mutex mutex_;
  int64_t next_id_ = 0;
  std::map<TransferId, Pending> pending_;
  absl::Status cause_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> MakeGloo(const GlooOptions& options) {
  const Member& member = options.member;
  if (member.rank < 0 || member.rank >= member.ranks())
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", member.rank, " of ", member.ranks(), " ranks"));
  in_addr v4;
  in6_addr v6;
  if (inet_pton(AF_INET, options.address.c_str(), &v4) != 1 &&
      inet_pton(AF_INET6, options.address.c_str(), &v6) != 1)
    return absl::InvalidArgumentError(
        absl::StrCat("\"", options.address, "\" is no IP address to listen at"));
  Store store(options.rendezvous, member.epoch, options.patience);
  try {
    gloo::transport::tcp::attr attributes(options.address.c_str());
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(member.rank),
                                                               static_cast<int>(member.ranks()));
    context->setTimeout(options.patience);
    context->connectFullMesh(store, device);
    return std::make_unique<GlooCollective>(options, std::move(context));
  } catch (const std::exception& error) {
    if (!store.status().ok()) return store.status();
    return absl::UnavailableError(
        absl::StrCat("rank ", member.rank, " cannot reach its group: ", error.what()));
  }
}

}  // namespace outboard::collective
