// Invariants
//   GL1 A connection that came is given to a link only after a claim that is right for that link's
//       token, in answer to this connection's own challenge.
//   GL2 At most kCallersMax connections have shown nothing yet; another one closes the oldest. None
//       of them stays for longer than kClaimWithin.
//   GL3 Only the thread of this touches links and sockets. Add and Remove wait for it.
#include "worker/groups/group_links.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/thread_slice.h"
#include "telemetry/log.h"
#include "wire/data_address.h"

namespace outboard::worker {
namespace {

using std::chrono::milliseconds;

// Twice what a session of 64 devices makes on one node of one device or another.
constexpr size_t kCallersMax = 128;
// A round trip between workers takes less, and an honest worker tries again.
constexpr milliseconds kClaimWithin{3'000};
constexpr milliseconds kAcceptPause{100};
constexpr int kEventsAtOnce = 64;
// What an event is about: the two of these, or an id, shifted, and a side.
constexpr uint64_t kWake = 0, kListener = 1, kFirstId = 1;  // ids begin behind those two

absl::Status SystemError(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(errno)));
}

}  // namespace

class GroupLinks::Impl {
 public:
  ~Impl() {
    if (thread_.joinable()) {
      Ask([this] { stopping_ = true; });
      thread_.join();
    }
    callers_.clear();
    links_.clear();
    for (const int fd : {listener_, wake_, epoll_})
      if (fd >= 0) close(fd);
  }

  absl::Status Begin(const std::string& text) {
    OB_ASSIGN_OR_RETURN(sockaddr_storage address, wire::ParseDataAddress(text, /*port_min=*/0));
    listener_ = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener_ < 0) return SystemError("no socket");
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    const auto name = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_, name, wire::LengthOf(address)) != 0) {
      const bool is_wrong = errno == EADDRNOTAVAIL;
      const absl::Status status = SystemError(absl::StrCat("cannot listen at ", text));
      return is_wrong ? absl::InvalidArgumentError(status.message()) : status;
    }
    if (listen(listener_, kCallersMax) != 0) return SystemError(absl::StrCat("listen at ", text));
    socklen_t size = sizeof address;
    if (getsockname(listener_, name, &size) != 0) return SystemError("getsockname");
    address_ = wire::DataAddressText(address);
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (epoll_ < 0 || wake_ < 0) return SystemError("no descriptor");
    Watch(wake_, kWake, EPOLLIN);
    Watch(listener_, kListener, EPOLLIN);
    try {
      thread_ = std::thread([this] { Serve(); });
    } catch (const std::system_error& error) {
      return absl::UnavailableError(absl::StrCat("no thread: ", error.what()));
    }
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

  Group Add(std::vector<GroupLinkOptions> links,
            std::function<void(uint32_t, const absl::Status&)> on_lost) {
    Group group{};
    Ask([&] {
      group = Group{next_id_++};
      on_lost_[group] = std::move(on_lost);
      for (GroupLinkOptions& options : links) {
        const uint64_t id = next_id_++;
        const auto made = links_.emplace(id, std::make_unique<Watched>(group, std::move(options)));
        by_name_[made.first->second->link.name()] = id;
        Step(id);
      }
    });
    return group;
  }

  void Remove(Group group) {
    Ask([&] {
      on_lost_.erase(group);
      std::erase_if(timed_, [&](uint64_t id) { return links_.at(id)->group == group; });
      std::erase_if(by_name_, [&](const auto& entry) {
        return links_.at(entry.second)->group == group;
      });
      std::erase_if(links_, [&](const auto& entry) { return entry.second->group == group; });
    });
  }

  Counts counts() {
    Counts counts;
    Ask([&] {
      counts = {links_.size(), 0, callers_.size(), refused_, accepts_failed_};
      for (const auto& [id, watched] : links_) counts.open += watched->link.is_open();
    });
    return counts;
  }

 private:
  struct Watched {
    Watched(Group group, GroupLinkOptions options) : group(group), link(std::move(options)) {}
    const Group group;
    GroupLink link;
    int fds[2] = {-1, -1};  // as epoll knows them: of the executor, of the network
    uint32_t events[2] = {0, 0};
  };
  struct Caller {  // has shown nothing yet
    explicit Caller(int fd) : fd(fd) {}
    ~Caller() {
      if (fd >= 0) close(fd);
    }
    Caller(const Caller&) = delete;
    int fd;
    std::string challenge, claim;
    LinkClock::time_point until = LinkClock::now() + kClaimWithin;
  };

  // Has the thread do this, and waits for it.
  void Ask(std::function<void()> task) {
    std::unique_lock lock(mutex_);
    const uint64_t mine = ++asked_;
    tasks_.push_back(std::move(task));
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof one);
    answered_.wait(lock, [&] { return done_ >= mine; });
  }

  void RunTasks() {
    uint64_t count = 0;
    (void)!read(wake_, &count, sizeof count);
    std::unique_lock lock(mutex_);
    while (!tasks_.empty()) {
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      ++done_;
      answered_.notify_all();
    }
  }

  void Watch(int fd, uint64_t about, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = about;
    if (epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event) != 0 && errno == ENOENT)
      epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  }

  void Serve() {
    const ScopedShortSlice short_slice;  // it passes bytes on, and beats
    epoll_event events[kEventsAtOnce];
    while (!stopping_) {
      const int ready = epoll_wait(epoll_, events, kEventsAtOnce, Patience());
      for (int i = 0; i < ready; ++i) {
        const uint64_t about = events[i].data.u64;
        if (about == kWake)
          RunTasks();
        else if (about == kListener)
          TakeCallers();
        else if (callers_.contains(about >> 1))
          Listen(about >> 1);
        else
          Step(about >> 1);
      }
      LookAtTimes();
    }
  }

  // Until the next time that something is to be done without an event.
  int Patience() const {
    std::optional<LinkClock::time_point> first;
    const auto consider = [&](LinkClock::time_point time) {
      if (!first || time < *first) first = time;
    };
    if (accepts_at_) consider(*accepts_at_);
    for (const auto& [id, caller] : callers_) consider(caller->until);
    for (const uint64_t id : timed_)
      if (const auto time = links_.at(id)->link.time()) consider(*time);
    if (!first) return -1;
    const auto left = std::chrono::ceil<milliseconds>(*first - LinkClock::now());
    return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
  }

  void LookAtTimes() {
    const LinkClock::time_point now = LinkClock::now();
    if (accepts_at_ && *accepts_at_ <= now) {
      accepts_at_.reset();
      Watch(listener_, kListener, EPOLLIN);
    }
    std::vector<uint64_t> due;
    for (const uint64_t id : timed_)
      if (const auto time = links_.at(id)->link.time(); time && *time <= now) due.push_back(id);
    for (const uint64_t id : due) Step(id);
    const size_t before = callers_.size();
    std::erase_if(callers_, [&](const auto& entry) { return entry.second->until <= now; });
    refused_ += before - callers_.size();
  }

  // Also of one that has gone: an event of it may have waited behind others.
  void Step(uint64_t id) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    Watched& watched = *found->second;
    const bool was_lost = !watched.link.lost().ok();
    watched.link.Step(LinkClock::now());
    Settle(id, watched);
    if (was_lost || watched.link.lost().ok()) return;
    telemetry::LogWarning("group_link_lost", {{"rank", RankOf(watched.link)},
                                              {"message", watched.link.lost().message()}});
    const auto on_lost = on_lost_.find(watched.group);
    if (on_lost == on_lost_.end()) return;
    const auto tell = std::move(on_lost->second);
    on_lost_.erase(on_lost);
    tell(RankOf(watched.link), watched.link.lost());
  }

  static uint32_t RankOf(const GroupLink& link) {
    const uint32_t from = link.name().from & ~kWatchBit, to = link.name().to & ~kWatchBit;
    return link.partner() == from ? to : from;
  }

  // Lets epoll know what the link waits for. A descriptor that it closed is none of epoll's any
  // more, and one is replaced only after a pause in which it has none.
  void Settle(uint64_t id, Watched& watched) {
    const GroupLink& link = watched.link;
    const int fds[2] = {link.executor(), link.network()};
    const uint32_t events[2] = {link.executor_events(), link.network_events()};
    for (const int side : {0, 1}) {
      if (fds[side] == watched.fds[side] && events[side] == watched.events[side]) continue;
      // One that waits for nothing is taken out: the end of its other side would be told for ever.
      if (fds[side] >= 0 && events[side] == 0) epoll_ctl(epoll_, EPOLL_CTL_DEL, fds[side], nullptr);
      if (fds[side] >= 0 && events[side] != 0)
        Watch(fds[side], id << 1 | static_cast<uint64_t>(side), events[side]);
      watched.fds[side] = fds[side];
      watched.events[side] = events[side];
    }
    const auto timed = std::find(timed_.begin(), timed_.end(), id);
    if (link.time().has_value() && timed == timed_.end()) timed_.push_back(id);
    if (!link.time().has_value() && timed != timed_.end()) timed_.erase(timed);
  }

  // ---- who connects -----------------------------------------------------------------------------

  void TakeCallers() {
    for (size_t i = 0; i < kCallersMax; ++i) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
        // As without a free descriptor: epoll would tell of the same caller for ever.
        ++accepts_failed_;
        accepts_at_ = LinkClock::now() + kAcceptPause;
        return Watch(listener_, kListener, 0);
      }
      if (callers_.size() >= kCallersMax) {  // GL2
        callers_.erase(callers_.begin());
        ++refused_;
      }
      SetLinkOptions(fd);
      const uint64_t id = next_id_++;
      auto caller = std::make_unique<Caller>(fd);
      absl::StatusOr<std::string> challenge = MakeChallenge();
      if (!challenge.ok()) continue;
      caller->challenge = *std::move(challenge);
      if (send(fd, caller->challenge.data(), caller->challenge.size(),
               MSG_NOSIGNAL | MSG_DONTWAIT) != static_cast<ssize_t>(caller->challenge.size()))
        continue;
      Watch(fd, id << 1, EPOLLIN);
      callers_.emplace(id, std::move(caller));
    }
  }

  void Listen(uint64_t id) {
    Caller& caller = *callers_.at(id);
    char part[kClaimBytes];
    const ssize_t got = recv(caller.fd, part, kClaimBytes - caller.claim.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got > 0) caller.claim.append(part, static_cast<size_t>(got));
    if (got > 0 && caller.claim.size() < kClaimBytes) return;
    if (got <= 0 || !GiveTo(caller)) ++refused_;
    callers_.erase(id);
  }

  // GL1. A session that this worker has not heard of yet is refused like a stranger's; its worker
  // tries again.
  bool GiveTo(Caller& caller) {
    const auto found = by_name_.find(NameIn(caller.claim));
    if (found == by_name_.end()) return false;
    Watched& watched = *links_.at(found->second);
    if (!ClaimIsRight(caller.challenge, caller.claim, watched.link.token()) ||
        !watched.link.Accept(caller.fd, caller.challenge, caller.claim))
      return false;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, caller.fd, nullptr);  // it is the link's from now on
    caller.fd = -1;
    Settle(found->second, watched);
    return true;
  }

  int listener_ = -1, wake_ = -1, epoll_ = -1;
  std::string address_;
  std::thread thread_;

  // Of the thread.
  bool stopping_ = false;
  uint64_t next_id_ = kFirstId;
  std::map<uint64_t, std::unique_ptr<Watched>> links_;
  std::map<LinkName, uint64_t> by_name_;
  std::vector<uint64_t> timed_;  // links that have a time
  std::map<uint64_t, std::unique_ptr<Caller>> callers_;  // the oldest first
  std::map<Group, std::function<void(uint32_t, const absl::Status&)>> on_lost_;
  uint64_t refused_ = 0, accepts_failed_ = 0;
  std::optional<LinkClock::time_point> accepts_at_;  // in a pause: its end

  std::mutex mutex_;  // of the next ones
  std::condition_variable answered_;
  std::deque<std::function<void()>> tasks_;
  uint64_t asked_ = 0, done_ = 0;
};

GroupLinks::GroupLinks() : impl_(std::make_unique<Impl>()) {}
GroupLinks::~GroupLinks() = default;
absl::StatusOr<std::unique_ptr<GroupLinks>> GroupLinks::Listen(const std::string& address,
                                                               const std::string& advertised) {
  const auto of_flag = [](const char* flag, const absl::Status& bad) {
    return absl::Status(bad.code(), absl::StrCat(flag, ": ", bad.message()));
  };
  if (!advertised.empty())
    if (const absl::Status bad = wire::ParseDataAddress(advertised).status(); !bad.ok())
      return of_flag("--advertise-data-address", bad);
  std::unique_ptr<GroupLinks> made(new GroupLinks());
  if (const absl::Status bad = made->impl_->Begin(address); !bad.ok())
    return of_flag("--data-address", bad);
  made->advertised_ = advertised.empty() ? made->address() : advertised;
  return made;
}
const std::string& GroupLinks::advertised() const { return advertised_; }
const std::string& GroupLinks::address() const { return impl_->address(); }
GroupLinks::Group GroupLinks::Add(std::vector<GroupLinkOptions> links,
                                  std::function<void(uint32_t, const absl::Status&)> on_lost) {
  return impl_->Add(std::move(links), std::move(on_lost));
}
void GroupLinks::Remove(Group group) { impl_->Remove(group); }
GroupLinks::Counts GroupLinks::counts() const { return impl_->counts(); }

}  // namespace outboard::worker
