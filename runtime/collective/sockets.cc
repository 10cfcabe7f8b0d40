// One thread, the mover, owns the sockets; the caller's thread hands it what was started.
//
//   Start --> pending of each partner --> mover: a frame to each, a frame from each --> Wait
//
// Invariants, under the lock:
//   1. A pair's frames are sent, and expected, in the order in which transfers were started; both
//      ranks start those of a common group in one order.
//   2. The mover touches a caller's memory only for transfers in `pending_`, and never once `told_`
//      is set, which is its last act: a caller gets an error only then.
//   3. `cause_` is set once.
#include "runtime/collective/sockets.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::collective {
namespace {

// A reason is cut to this; it crosses from process to process.
constexpr uint32_t kReasonBytesMax = 1024;
// One call moves so much at most, so that all partners' bytes make progress.
constexpr size_t kBytesAtOnce = size_t{1} << 20;
// So much fits a socket where the system lets it: fewer turns between two processes of one core.
constexpr int kSocketBytes = 1 << 20;
// The last words of a rank that leaves get so long to be sent: a tenth of the second in which a
// partner is to be free.
constexpr std::chrono::milliseconds kLastWords{100};

struct FrameHeader {
  enum Kind : uint32_t { kBlock = 1, kAborted = 2 };
  uint32_t kind = kBlock;
  uint32_t pattern = 0;
  uint64_t epoch = 0;
  uint64_t count = 0, stride = 0;  // the group
  uint64_t number = 0;             // of the transfer in it; of kAborted: the rank that left first
  uint64_t bytes = 0;              // that follow: a block, or a reason
};

// One frame on its way.
struct Frame {
  FrameHeader header;
  char* bytes = nullptr;  // of the block; sent from there, or received to there
  size_t done = 0;        // of header and block together
  int64_t transfer = 0;   // TransferId

  size_t size() const { return sizeof header + header.bytes; }
};

class SocketCollective final : public Collective {
 public:
  SocketCollective(Member member, std::vector<int> sockets, int wake)
      : Collective(std::move(member)), wake_(wake), partners_(sockets.size()) {
    for (size_t rank = 0; rank < sockets.size(); ++rank) partners_[rank].socket = sockets[rank];
  }
  ~SocketCollective() override {
    if (mover_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        leaving_ = true;
        if (!pending_.empty()) SetCause(member().rank, absl::UnavailableError("its session ended"));
      }
      Wake();
      mover_.join();
    }
    for (const Partner& partner : partners_)
      if (partner.socket >= 0) close(partner.socket);
    close(wake_);
  }

  // Errors: UNAVAILABLE
  absl::Status Begin() {
    try {
      mover_ = std::thread([this] { Move(); });
    } catch (const std::system_error& error) {
      return absl::UnavailableError(absl::StrCat("no thread for collectives: ", error.what()));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TransferId> Start(std::span<const BlockTransfer> bucket) override {
    for (const BlockTransfer& transfer : bucket)
      if (absl::Status fits = CheckTransfer(member(), transfer); !fits.ok()) return fits;
    if (absl::Status going = status(); !going.ok()) return going;
    for (const BlockTransfer& transfer : bucket) CopyOwn(transfer);
    int64_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!cause_.ok()) return cause_;
      id = next_id_++;
      pending_[id] = 0;
      for (const BlockTransfer& transfer : bucket) Enqueue(transfer, id);
    }
    Wake();
    return TransferId{id};
  }

  absl::Status Wait(TransferId transfer) override {
    const auto id = static_cast<int64_t>(transfer);
    std::unique_lock lock(mutex_);
    if (!pending_.contains(id))
      return absl::InvalidArgumentError("a transfer that was not started, or was waited for");
    changed_.wait(lock, [&] { return pending_.at(id) == 0 || told_; });
    const bool done = pending_.at(id) == 0;
    pending_.erase(id);
    return done ? absl::OkStatus() : cause_;
  }

  void Abort(const absl::Status& cause) override {
    std::unique_lock lock(mutex_);
    SetCause(member().rank, cause);
    Wake();
    changed_.wait(lock, [&] { return told_; });
  }

  absl::Status status() const override {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  struct Partner {
    int socket = -1;
    std::deque<Frame> to_send, to_receive;
    // Of the frame that comes: its header as far as it is there, and of an abort its reason.
    FrameHeader coming;
    size_t coming_bytes = 0;
    std::string reason;
    size_t reason_bytes = 0;  // of it that are there
    bool gone = false;        // its socket has ended; nothing was under way

    bool header_came() const { return coming_bytes == sizeof coming; }
    bool reason_came() const { return !reason.empty() && reason_bytes == reason.size(); }
  };

  // Where the blocks of one transfer are, for a rank.
  struct Blocks {
    Blocks(const BlockTransfer& transfer, int64_t rank)
        : transfer(transfer),
          place(rank / transfer.stride % transfer.count),
          bytes(static_cast<size_t>(transfer.block_bytes())),
          broadcast(transfer.pattern == TransferPattern::kBroadcast) {}

    bool sends() const { return !broadcast || place == transfer.root; }
    bool receives_from(int64_t from) const { return !broadcast || from == transfer.root; }
    char* sent_to(int64_t to) const {
      const bool each = transfer.pattern == TransferPattern::kAllToAll;
      return const_cast<char*>(transfer.send.data()) + (each ? static_cast<size_t>(to) * bytes : 0);
    }
    char* received_from(int64_t from) const {
      return transfer.receive.data() + (broadcast ? 0 : static_cast<size_t>(from) * bytes);
    }

    const BlockTransfer& transfer;
    const int64_t place;
    const size_t bytes;
    const bool broadcast;
  };

  // What this rank sends itself.
  void CopyOwn(const BlockTransfer& transfer) const {
    const Blocks blocks(transfer, member().rank);
    if (blocks.bytes > 0 && blocks.sends())
      std::memcpy(blocks.received_from(blocks.place), blocks.sent_to(blocks.place), blocks.bytes);
  }

  // Puts the frames of one transfer behind those that were started before. Blocks of no bytes need
  // none. Under the lock.
  void Enqueue(const BlockTransfer& transfer, int64_t id) {
    const Blocks blocks(transfer, member().rank);
    const FrameHeader header{.pattern = static_cast<uint32_t>(transfer.pattern),
                             .epoch = member().epoch,
                             .count = static_cast<uint64_t>(transfer.count),
                             .stride = static_cast<uint64_t>(transfer.stride),
                             .number = numbers_[{transfer.count, transfer.stride}]++,
                             .bytes = blocks.bytes};
    if (blocks.bytes == 0) return;
    for (int64_t p = 0; p < transfer.count; ++p) {
      if (p == blocks.place) continue;
      Partner& partner = partners_[member().rank + (p - blocks.place) * transfer.stride];
      if (blocks.sends()) {
        partner.to_send.push_back({header, blocks.sent_to(p), 0, id});
        ++pending_[id];
      }
      if (blocks.receives_from(p)) {
        partner.to_receive.push_back({header, blocks.received_from(p), 0, id});
        ++pending_[id];
      }
    }
  }

  // The first cause stays: `rank` left because of `cause`. Under the lock.
  void SetCause(int64_t rank, const absl::Status& cause) {
    if (!cause_.ok()) return;
    cause_ = AbortedBy(rank, cause);
    left_first_ = rank;
    reason_ = std::string(cause.message()).substr(0, kReasonBytesMax);
  }

  void Wake() {
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
  }

  // ---- the mover --------------------------------------------------------------------------------

  void Move() {
    std::vector<pollfd> polled;
    while (true) {
      polled.assign(1, {wake_, POLLIN, 0});
      {
        const std::lock_guard lock(mutex_);
        if (!cause_.ok() || leaving_) break;
        for (const Partner& partner : partners_) polled.push_back(PollOf(partner));
      }
      if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) {
        const absl::Status failed =
            absl::InternalError(absl::StrCat("poll: ", std::strerror(errno)));
        const std::lock_guard lock(mutex_);
        SetCause(member().rank, failed);
        continue;
      }
      if (polled[0].revents != 0) {
        uint64_t count = 0;
        (void)!read(wake_, &count, sizeof count);
      }
      {
        const std::lock_guard lock(mutex_);
        if (!cause_.ok()) break;
      }
      for (size_t rank = 0; rank < partners_.size(); ++rank) {
        Partner& partner = partners_[rank];
        const short events = polled[rank + 1].revents;
        absl::Status status;
        if (partner.gone && NeedsIt(partner)) status = Gone();
        if (status.ok() && (events & POLLOUT)) status = SendTo(partner);
        if (status.ok() && (events & (POLLIN | POLLHUP | POLLERR))) status = ReceiveFrom(partner);
        if (!status.ok()) Failed(static_cast<int64_t>(rank), status);
      }
      changed_.notify_all();
    }
    TellPartners();
    const std::lock_guard lock(mutex_);
    told_ = true;
    changed_.notify_all();
  }

  // What to wait for: nothing of a partner that has gone, or is ahead of this rank.
  static pollfd PollOf(const Partner& partner) {
    const bool sends = !partner.to_send.empty();
    const bool ahead =
        partner.header_came() && partner.reason.empty() && partner.to_receive.empty();
    const int events = (sends ? POLLOUT : 0) | (ahead ? 0 : POLLIN);
    return {partner.gone || events == 0 ? -1 : partner.socket, static_cast<short>(events), 0};
  }

  bool NeedsIt(const Partner& partner) {
    const std::lock_guard lock(mutex_);
    return !partner.to_send.empty() || !partner.to_receive.empty();
  }

  void Failed(int64_t rank, const absl::Status& status) {
    const std::lock_guard lock(mutex_);
    const Partner& partner = partners_[rank];
    if (partner.reason_came()) rank = static_cast<int64_t>(partner.coming.number);  // who began it
    SetCause(rank, status);
  }

  // Takes the first frame's block off; under no lock.
  void FrameDone(std::deque<Frame>& frames) {
    const std::lock_guard lock(mutex_);
    const auto pending = pending_.find(frames.front().transfer);
    if (pending != pending_.end()) --pending->second;
    frames.pop_front();
  }

  Frame* FirstOf(std::deque<Frame>& frames) {
    const std::lock_guard lock(mutex_);  // Start adds at the end, which moves no element
    return frames.empty() ? nullptr : &frames.front();
  }

  // Sends what the socket takes of a frame. False: it takes no more now, or, with errno other than
  // EAGAIN, ever.
  static bool SendSome(int socket, Frame& frame) {
    constexpr size_t kHeader = sizeof(FrameHeader);
    iovec parts[2];
    size_t count = 0;
    if (frame.done < kHeader)
      parts[count++] = {reinterpret_cast<char*>(&frame.header) + frame.done, kHeader - frame.done};
    const size_t block_done = frame.done > kHeader ? frame.done - kHeader : 0;
    parts[count++] = {frame.bytes + block_done, frame.header.bytes - block_done};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) errno = EAGAIN;
    if (sent < 0) return false;
    frame.done += static_cast<size_t>(sent);
    return true;
  }

  absl::Status SendTo(Partner& partner) {
    for (size_t moved = 0; moved < kBytesAtOnce;) {
      Frame* const frame = FirstOf(partner.to_send);
      if (frame == nullptr) return absl::OkStatus();
      const size_t before = frame->done;
      if (!SendSome(partner.socket, *frame)) {
        if (errno == EAGAIN) return absl::OkStatus();
        return ReceiveReason(partner);  // it may have come before the socket ended
      }
      moved += frame->done - before;
      if (frame->done < frame->size()) return absl::OkStatus();
      FrameDone(partner.to_send);
    }
    return absl::OkStatus();
  }

  // A partner's socket takes no more: what it said last, or that its process has ended.
  absl::Status ReceiveReason(Partner& partner) {
    while (true) {
      OB_ASSIGN_OR_RETURN(const size_t got, ReceiveSome(partner));
      if (got == 0) return Gone();
    }
  }

  absl::Status ReceiveFrom(Partner& partner) {
    for (size_t moved = 0; moved < kBytesAtOnce;) {
      OB_ASSIGN_OR_RETURN(const size_t got, ReceiveSome(partner));
      if (got == 0) break;
      moved += got;
    }
    return absl::OkStatus();
  }

  static absl::Status Gone() { return absl::UnavailableError("its process has ended"); }

  // Reads a part of the frame that comes. 0: nothing is there, or what is there is of a transfer
  // that this rank has not started yet, or the partner has left while nothing was under way.
  absl::StatusOr<size_t> ReceiveSome(Partner& partner) {
    constexpr size_t kHeader = sizeof(FrameHeader);
    char* to = reinterpret_cast<char*>(&partner.coming) + partner.coming_bytes;
    size_t wanted = kHeader - partner.coming_bytes;
    Frame* frame = nullptr;
    if (partner.coming_bytes == kHeader) {
      if (partner.coming.kind == FrameHeader::kAborted) {
        to = partner.reason.data() + partner.reason_bytes;
        wanted = partner.reason.size() - partner.reason_bytes;
      } else {
        frame = FirstOf(partner.to_receive);
        if (frame == nullptr) return size_t{0};
        OB_RETURN_IF_ERROR(CheckSame(partner.coming, frame->header));
        to = frame->bytes + frame->done;
        wanted = frame->header.bytes - frame->done;
      }
    }
    const ssize_t count = recv(partner.socket, to, wanted, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return size_t{0};
    if (count <= 0) {
      partner.gone = partner.coming_bytes == 0 && !NeedsIt(partner);
      if (partner.gone) return size_t{0};
      return Gone();
    }
    const auto got = static_cast<size_t>(count);
    if (partner.coming_bytes < kHeader) {
      partner.coming_bytes += got;
      if (partner.coming_bytes == kHeader) OB_RETURN_IF_ERROR(HeaderCame(partner));
    } else if (frame != nullptr) {
      frame->done += got;
      if (frame->done == frame->header.bytes) {
        partner.coming_bytes = 0;
        FrameDone(partner.to_receive);
      }
    } else {
      partner.reason_bytes += got;
      if (partner.reason_came()) return absl::UnavailableError(partner.reason);
    }
    return got;
  }

  absl::Status HeaderCame(Partner& partner) {
    const FrameHeader& header = partner.coming;
    if (header.epoch != member().epoch)
      return absl::InternalError(
          absl::StrCat("it sent bytes of epoch ", header.epoch, " in epoch ", member().epoch));
    if (header.kind == FrameHeader::kBlock) return absl::OkStatus();
    if (header.kind != FrameHeader::kAborted || header.bytes == 0 ||
        header.bytes > kReasonBytesMax || header.number >= partners_.size())
      return absl::InternalError("it sent what is no frame");
    partner.reason.assign(header.bytes, '\0');
    return absl::OkStatus();
  }

  static absl::Status CheckSame(const FrameHeader& theirs, const FrameHeader& ours) {
    if (theirs.pattern == ours.pattern && theirs.count == ours.count &&
        theirs.stride == ours.stride && theirs.number == ours.number && theirs.bytes == ours.bytes)
      return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        "it started another transfer: ", ToString(static_cast<TransferPattern>(theirs.pattern)),
        " ", theirs.number, " of ", theirs.bytes, " bytes in a group of ", theirs.count,
        ", where this rank has ", ToString(static_cast<TransferPattern>(ours.pattern)), " ",
        ours.number, " of ", ours.bytes, " bytes in one of ", ours.count));
  }

  // Sends the cause to all. It can only follow a whole frame, so one that is on its way goes on to
  // its end first, if its partner takes it in time; else that one sees the end of the socket alone.
  void TellPartners() {
    std::string reason;
    FrameHeader header{.kind = FrameHeader::kAborted, .epoch = member().epoch};
    {
      const std::lock_guard lock(mutex_);
      if (cause_.ok()) return;
      reason = reason_.empty() ? "without a reason" : reason_;
      header.number = static_cast<uint64_t>(left_first_);
      header.bytes = reason.size();
    }
    const auto deadline = std::chrono::steady_clock::now() + kLastWords;
    std::vector<Frame> last(partners_.size());
    std::vector<pollfd> polled;
    for (size_t rank = 0; rank < partners_.size(); ++rank) {
      last[rank].header = header;
      last[rank].bytes = reason.data();
      polled.push_back({partners_[rank].gone ? -1 : partners_[rank].socket, POLLOUT, 0});
    }
    while (std::any_of(polled.begin(), polled.end(), [](const pollfd& p) { return p.fd >= 0; })) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      if (left.count() <= 0 ||
          poll(polled.data(), polled.size(), static_cast<int>(left.count())) == 0)
        break;
      for (size_t rank = 0; rank < polled.size(); ++rank) {
        if (polled[rank].fd < 0 || polled[rank].revents == 0) continue;
        std::deque<Frame>& frames = partners_[rank].to_send;
        const bool within = !frames.empty() && frames.front().done > 0 &&
                            frames.front().done < frames.front().size();
        Frame& frame = within ? frames.front() : last[rank];
        const bool broken = !SendSome(polled[rank].fd, frame) && errno != EAGAIN;
        if (broken || (!within && frame.done == frame.size())) polled[rank].fd = -1;
      }
    }
    for (const Partner& partner : partners_)
      if (partner.socket >= 0) shutdown(partner.socket, SHUT_WR);
  }

  const int wake_;  // an eventfd
  std::thread mover_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Partner> partners_;  // by rank; the mover's, but for the ends of their queues
  std::map<std::pair<int64_t, int64_t>, uint64_t> numbers_;  // of the transfers of a group
  std::map<int64_t, int64_t> pending_;  // frames that are under way, by transfer
  int64_t next_id_ = 0;
  bool told_ = false;  // the mover has ended, and the partners know why
  bool leaving_ = false;
  absl::Status cause_;
  int64_t left_first_ = 0;  // the rank that the cause is about,
  std::string reason_;      // and why it left
};

}  // namespace

void WidenSocket(int socket) {
  setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof kSocketBytes);
  setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kSocketBytes, sizeof kSocketBytes);
}

absl::StatusOr<std::vector<std::vector<int>>> ConnectRanks(int64_t ranks) {
  std::vector<std::vector<int>> ends(ranks, std::vector<int>(ranks, -1));
  for (int64_t a = 0; a < ranks; ++a)
    for (int64_t b = 0; b < a; ++b) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        const absl::Status status = absl::UnavailableError(
            absl::StrCat("no sockets between ", ranks, " ranks: ", std::strerror(errno)));
        for (const std::vector<int>& of_rank : ends)
          for (const int end : of_rank)
            if (end >= 0) close(end);
        return status;
      }
      for (const int end : pair) WidenSocket(end);
      ends[a][b] = pair[0];
      ends[b][a] = pair[1];
    }
  return ends;
}

absl::StatusOr<std::unique_ptr<Collective>> MakeOverSockets(Member member,
                                                            std::vector<int> sockets) {
  const auto close_all = [&] {
    for (const int socket : sockets)
      if (socket >= 0) close(socket);
  };
  bool fits = static_cast<int64_t>(sockets.size()) == member.ranks() && member.rank >= 0 &&
              member.rank < member.ranks();
  for (size_t rank = 0; fits && rank < sockets.size(); ++rank)
    fits = sockets[rank] >= 0 || static_cast<int64_t>(rank) == member.rank;
  if (!fits) {
    close_all();
    return absl::InvalidArgumentError(absl::StrCat("rank ", member.rank, " of ", member.ranks(),
                                                   " needs a socket to each other rank"));
  }
  int wake = std::exchange(sockets[static_cast<size_t>(member.rank)], -1);
  if (wake < 0) wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake < 0) {
    close_all();
    return absl::UnavailableError(absl::StrCat("no eventfd: ", std::strerror(errno)));
  }
  auto made = std::make_unique<SocketCollective>(std::move(member), std::move(sockets), wake);
  if (absl::Status begun = made->Begin(); !begun.ok()) return begun;
  return made;
}

}  // namespace outboard::collective
