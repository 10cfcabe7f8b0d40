// Invariants
//   P1  State is touched under mutex_ only: by the loop between two waits, and by the setters,
//       which wake the loop.
//   P2  Bytes leave a flow in the order in which they came: due times of a flow never fall.
//   P3  A file descriptor is in epoll with the interest that its flows have; one that nobody waits
//       for has none.
//   P4  A cut connection is read to its end (what comes is dropped), so that closing it resets
//       nothing: what was passed on before the cut arrives.
//
//   accepted --(held back)--> waiting --> open --CutNow--> draining --both ends--> gone
//                                          |---both ways ended and delivered-----> gone
#include "tests/net/fault_proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace outboard::test {

namespace {

using Clock = std::chrono::steady_clock;
using Time = Clock::time_point;

constexpr size_t kPieceBytes = size_t{64} << 10;
constexpr uint64_t kListenerKey = ~uint64_t{0}, kTimerKey = kListenerKey - 1,
                   kWakeKey = kListenerKey - 2;
constexpr std::chrono::seconds kDrainWithin{
    2};  // then a cut connection is closed, read to its end or not

constexpr int Index(Way way) { return way == Way::kUp ? 0 : 1; }

struct Address {
  int family = AF_INET;
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Address Parse(const std::string& text) {
  Address address;
  if (text.starts_with("unix:")) {
    address.family = AF_UNIX;
    auto* const out = reinterpret_cast<sockaddr_un*>(&address.storage);
    out->sun_family = AF_UNIX;
    if (text.size() - 5 >= sizeof out->sun_path)
      throw std::runtime_error("fault proxy: the path of " + text + " is too long");
    std::memcpy(out->sun_path, text.data() + 5, text.size() - 5);
    address.length = sizeof *out;
    return address;
  }
  const size_t colon = text.rfind(':');
  auto* const out = reinterpret_cast<sockaddr_in*>(&address.storage);
  out->sin_family = AF_INET;
  const std::string host =
      text.substr(0, colon) == "localhost" ? "127.0.0.1" : text.substr(0, colon);
  if (colon == std::string::npos || inet_pton(AF_INET, host.c_str(), &out->sin_addr) != 1)
    throw std::runtime_error("fault proxy: \"" + text + "\" is neither HOST:PORT nor unix:/path");
  out->sin_port = htons(static_cast<uint16_t>(std::stoul(text.substr(colon + 1))));
  address.length = sizeof *out;
  return address;
}

int NewSocket(int family) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) throw std::runtime_error("fault proxy: no socket");
  return fd;
}

void NoDelay(int fd, int family) {
  const int on = 1;
  if (family == AF_INET) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

struct Piece {
  std::string bytes;
  Time due;
};

// One way of a connection.
struct Flow {
  std::deque<Piece> queue;
  size_t queued_bytes = 0;
  size_t written = 0;        // of queue.front()
  uint64_t read_bytes = 0;   // in all
  Time last_due, line_free;  // P2; when the rate lets the next byte go
  bool ended = false;        // nothing more will be read
  bool shut = false;         // the receiver was told
  bool cut = false;          // the connection is cut when the queue is empty
  bool lost = false;         // half-closed: what is read is dropped
  bool blocked = false;      // the receiver takes no more for now
};

struct Connection {
  uint64_t number = 0;
  std::array<int, 2> fds = {-1, -1};  // who connected, the target
  std::array<Flow, 2> flows;          // by Index(Way): flows[i] reads fds[i] and writes fds[1 - i]
  std::array<uint32_t, 2> interest = {0, 0};
  Time set_up_at;  // bytes leave no earlier
  bool held = false;
  bool draining = false;
  Time drain_until;
};

}  // namespace

class FaultProxy::Impl {
 public:
  Impl(std::string target, const std::string& listen, uint64_t seed)
      : target_(std::move(target)), random_(seed) {
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    timer_ = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    Watch(timer_, kTimerKey, EPOLLIN, EPOLL_CTL_ADD);
    Watch(wake_, kWakeKey, EPOLLIN, EPOLL_CTL_ADD);
    address_ = listen;
    Listen();
    thread_ = std::thread([this] { Loop(); });
  }

  ~Impl() {
    Do([this] { stopping_ = true; });
    thread_.join();
    for (auto& [key, connection] : connections_)
      for (const int fd : connection.fds)
        if (fd >= 0) close(fd);
    StopListening();
    for (const int fd : {epoll_, timer_, wake_}) close(fd);
  }

  // A setter's work, under the mutex; the loop looks at everything anew.
  template <typename Work>
  void Do(Work work) {
    std::lock_guard lock(mutex_);
    work();
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t wrote = write(wake_, &one, sizeof one);
  }

  const std::string& address() const { return address_; }

  // ---- the state that setters change; under Do
  std::array<Shape, 2> shapes;
  std::array<bool, 2> stalled = {false, false};
  std::array<Time, 2> stalled_until = {Time::max(), Time::max()};
  std::vector<std::pair<Way, uint64_t>> cuts;
  Cutter cutter;
  bool hold_next = false;

  void CutAll() {
    for (auto& [key, connection] : connections_)
      if (!connection.draining) Cut(connection);
  }

  void HalfClose(Way way) {
    for (auto& [key, connection] : connections_) {
      Flow& flow = connection.flows[Index(way)];
      if (connection.draining || connection.held || flow.shut) continue;
      flow.lost = flow.shut = true;
      flow.queue.clear();
      flow.queued_bytes = 0;
      shutdown(connection.fds[1 - Index(way)], SHUT_WR);
    }
  }

  void Refuse(bool refuse) {
    if (refuse == (listener_ < 0)) return;
    refuse ? StopListening() : Listen();
  }

  Counters counters() {
    std::lock_guard lock(mutex_);
    Counters all = counters_;
    for (const auto& [key, connection] : connections_) all.open += !connection.draining;
    return all;
  }

 private:
  // ---- listening --------------------------------------------------------------------------------

  void Listen() {
    Address address = Parse(address_);
    listener_ = NewSocket(address.family);
    const int on = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener_, address.get(), address.length) != 0 || listen(listener_, 128) != 0)
      throw std::runtime_error("fault proxy: cannot listen at " + address_ + ": " +
                               std::strerror(errno));
    if (address_.ends_with(":0")) {
      getsockname(listener_, address.get(), &address.length);
      const uint16_t port = ntohs(reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port);
      address_ = address_.substr(0, address_.rfind(':') + 1) + std::to_string(port);
    }
    Watch(listener_, kListenerKey, EPOLLIN, EPOLL_CTL_ADD);
  }

  void StopListening() {
    if (listener_ < 0) return;
    close(std::exchange(listener_, -1));
    if (address_.starts_with("unix:")) unlink(address_.c_str() + 5);
  }

  void Accept() {
    const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    Connection& connection = connections_[next_key_++];
    connection.number = counters_.connections++;
    connection.fds[0] = fd;
    if (std::exchange(hold_next, false)) {
      connection.held = true;
      return;
    }
    SetUp(connection);
    // Those that had to wait for one that came later.
    for (auto& [key, other] : connections_)
      if (other.held) SetUp(other);
  }

  void SetUp(Connection& connection) {
    connection.held = false;
    connection.set_up_at = Clock::now() + shapes[0].delay + shapes[1].delay;
    Address target = Parse(target_);
    connection.fds[1] = NewSocket(target.family);
    // Loopback and unix sockets answer at once, or in the background.
    if (connect(connection.fds[1], target.get(), target.length) != 0 && errno != EINPROGRESS) {
      ++counters_.unreachable;
      CutNow(connection);
      return;
    }
    NoDelay(connection.fds[0], Parse(address_).family);
    NoDelay(connection.fds[1], target.family);
  }

  // ---- the loop ---------------------------------------------------------------------------------

  void Loop() {
    std::array<epoll_event, 64> events;
    while (true) {
      {
        std::lock_guard lock(mutex_);
        if (stopping_) return;
        Advance();
      }
      const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
      std::lock_guard lock(mutex_);
      for (int i = 0; i < count; ++i) Handle(events[i]);
    }
  }

  void Handle(const epoll_event& event) {
    const uint64_t key = event.data.u64;
    uint64_t ignored;
    if (key == kTimerKey || key == kWakeKey) {
      [[maybe_unused]] const ssize_t got =
          read(key == kTimerKey ? timer_ : wake_, &ignored, sizeof ignored);
      return;
    }
    if (key == kListenerKey) {
      if (listener_ >= 0) Accept();
      return;
    }
    const auto it = connections_.find(key / 2);
    if (it == connections_.end()) return;
    Connection& connection = it->second;
    const int side = static_cast<int>(key % 2);
    if (connection.fds[side] < 0) return;
    if (event.events & EPOLLOUT) connection.flows[1 - side].blocked = false;
    if (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) Read(connection, side);
  }

  void Read(Connection& connection, int side) {
    Flow& flow = connection.flows[side];
    char buffer[kPieceBytes];
    const ssize_t got = recv(connection.fds[side], buffer, sizeof buffer, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0 && errno == ECONNREFUSED && !connection.draining) {
      ++counters_.unreachable;
      CutNow(connection);
    }
    if (got <= 0) {
      flow.ended = true;
      return;
    }
    if (connection.draining || flow.lost || flow.cut) return;  // P4
    const Way way = side == 0 ? Way::kUp : Way::kDown;
    size_t length = static_cast<size_t>(got);
    if (const auto at = CutIn(connection, way, {buffer, length})) {
      length = std::min(length, *at);
      flow.cut = true;
    }
    flow.read_bytes += length;
    if (length > 0) Queue(connection, side, std::string(buffer, length));
  }

  std::optional<size_t> CutIn(Connection& connection, Way way, std::string_view bytes) {
    const uint64_t before = connection.flows[Index(way)].read_bytes;
    for (auto it = cuts.begin(); it != cuts.end(); ++it) {
      if (it->first != way || it->second > before + bytes.size()) continue;
      const uint64_t at = it->second;
      cuts.erase(it);
      return at > before ? at - before : 0;
    }
    if (!cutter) return std::nullopt;
    return cutter(connection.number, way, bytes);
  }

  void Queue(Connection& connection, int side, std::string bytes) {
    Flow& flow = connection.flows[side];
    const Shape& shape = shapes[side];
    Time leaves = std::max(Clock::now(), connection.set_up_at);
    if (shape.bytes_per_s > 0) {
      leaves = std::max(leaves, flow.line_free) +
               std::chrono::nanoseconds(bytes.size() * 1'000'000'000 / shape.bytes_per_s);
      flow.line_free = leaves;
    }
    leaves += shape.delay;
    if (shape.jitter.count() > 0)
      leaves += std::chrono::microseconds(random_() % (shape.jitter.count() + 1));
    flow.last_due = std::max(flow.last_due, leaves);  // P2
    flow.queued_bytes += bytes.size();
    flow.queue.push_back({std::move(bytes), flow.last_due});
  }

  // Passes on what is due, and says when to look again.
  void Advance() {
    const Time now = Clock::now();
    Time next = Time::max();
    for (int way = 0; way < 2; ++way) {
      if (stalled[way] && stalled_until[way] <= now) stalled[way] = false;
      if (stalled[way]) next = std::min(next, stalled_until[way]);
    }
    for (auto it = connections_.begin(); it != connections_.end();) {
      if (Advance(it->second, now, next)) {
        Interest(it->first, it->second);
        ++it;
      } else {
        for (const int fd : it->second.fds)
          if (fd >= 0) close(fd);
        it = connections_.erase(it);
      }
    }
    itimerspec at{};
    if (next != Time::max()) {
      const auto ns = std::max<int64_t>(1, next.time_since_epoch().count());
      at.it_value.tv_sec = ns / 1'000'000'000;
      at.it_value.tv_nsec = ns % 1'000'000'000;
    }
    timerfd_settime(timer_, TFD_TIMER_ABSTIME, &at, nullptr);
  }

  // False when it is over.
  bool Advance(Connection& connection, Time now, Time& next) {
    if (connection.held) return true;
    for (int side = 0; side < 2 && !connection.draining; ++side) {
      Flow& flow = connection.flows[side];
      if (!flow.shut) Write(connection, side, now, next);
      if (!flow.queue.empty() || stalled[side]) continue;
      if (flow.cut) {
        Cut(connection);
      } else if (flow.ended && !std::exchange(flow.shut, true)) {
        shutdown(connection.fds[1 - side], SHUT_WR);
      }
    }
    const bool ended = connection.flows[0].ended && connection.flows[1].ended;
    if (!connection.draining)
      return !(ended && connection.flows[0].shut && connection.flows[1].shut);
    if (ended || now >= connection.drain_until) return false;
    next = std::min(next, connection.drain_until);
    return true;
  }

  void Write(Connection& connection, int side, Time now, Time& next) {
    Flow& flow = connection.flows[side];
    while (!flow.queue.empty() && !flow.blocked && !stalled[side]) {
      Piece& piece = flow.queue.front();
      if (piece.due > now) {
        next = std::min(next, piece.due);
        return;
      }
      const ssize_t wrote = send(connection.fds[1 - side], piece.bytes.data() + flow.written,
                                 piece.bytes.size() - flow.written, MSG_NOSIGNAL);
      if (wrote < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ENOTCONN) {
          flow.blocked = true;
        } else {
          CutNow(connection);  // the receiver is gone
        }
        return;
      }
      flow.written += static_cast<size_t>(wrote);
      flow.queued_bytes -= static_cast<size_t>(wrote);
      (side == 0 ? counters_.bytes_up : counters_.bytes_down) += static_cast<uint64_t>(wrote);
      if (flow.written < piece.bytes.size()) continue;
      flow.queue.pop_front();
      flow.written = 0;
    }
  }

  void Cut(Connection& connection) {
    ++counters_.cut;
    CutNow(connection);
  }

  void CutNow(Connection& connection) {
    connection.draining = true;
    connection.held = false;
    connection.drain_until = Clock::now() + kDrainWithin;
    for (int side = 0; side < 2; ++side) {
      connection.flows[side].queue.clear();
      connection.flows[side].queued_bytes = 0;
      if (connection.fds[side] >= 0) {
        shutdown(connection.fds[side], SHUT_WR);
      } else {
        connection.flows[side].ended = true;
      }
    }
  }

  // P3
  void Interest(uint64_t key, Connection& connection) {
    if (connection.held) return;
    for (int side = 0; side < 2; ++side) {
      const Flow& reads = connection.flows[side];
      const Flow& writes = connection.flows[1 - side];
      uint32_t events = 0;
      const bool full = reads.queued_bytes >= kQueueBytesMax;
      if (!reads.ended && (connection.draining || (!full && !stalled[side]))) events |= EPOLLIN;
      if (writes.blocked && !connection.draining) events |= EPOLLOUT;
      const uint32_t before = connection.interest[side];
      if (events == before || connection.fds[side] < 0) continue;
      // A socket without interest is taken out: its hang-up would be told again and again.
      Watch(connection.fds[side], 2 * key + side, events,
            before == 0   ? EPOLL_CTL_ADD
            : events == 0 ? EPOLL_CTL_DEL
                          : EPOLL_CTL_MOD);
      connection.interest[side] = events;
    }
  }

  void Watch(int fd, uint64_t key, uint32_t events, int operation) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = key;
    epoll_ctl(epoll_, operation, fd, &event);
  }

  const std::string target_;
  std::string address_;
  int epoll_ = -1, timer_ = -1, wake_ = -1, listener_ = -1;
  std::mutex mutex_;
  bool stopping_ = false;
  std::mt19937_64 random_;
  uint64_t next_key_ = 0;
  std::map<uint64_t, Connection> connections_;
  Counters counters_;
  std::thread thread_;
};

FaultProxy::FaultProxy(std::string target, const std::string& listen, uint64_t seed)
    : impl_(std::make_unique<Impl>(std::move(target), listen, seed)) {}
FaultProxy::~FaultProxy() = default;

const std::string& FaultProxy::address() const { return impl_->address(); }

void FaultProxy::SetShape(Way way, Shape shape) {
  impl_->Do([&] { impl_->shapes[Index(way)] = shape; });
}
void FaultProxy::SetRoundTrip(std::chrono::microseconds round_trip) {
  impl_->Do([&] {
    impl_->shapes[0] = {.delay = round_trip / 2};
    impl_->shapes[1] = {.delay = round_trip - round_trip / 2};
  });
}
void FaultProxy::CutAll() {
  impl_->Do([&] { impl_->CutAll(); });
}
void FaultProxy::CutAfter(Way way, uint64_t bytes) {
  impl_->Do([&] { impl_->cuts.emplace_back(way, bytes); });
}
void FaultProxy::SetCutter(Cutter cutter) {
  impl_->Do([&] { impl_->cutter = std::move(cutter); });
}
void FaultProxy::HalfClose(Way way) {
  impl_->Do([&] { impl_->HalfClose(way); });
}
void FaultProxy::Stall(Way way) {
  impl_->Do([&] {
    impl_->stalled[Index(way)] = true;
    impl_->stalled_until[Index(way)] = Time::max();
  });
}
void FaultProxy::Resume(Way way) {
  impl_->Do([&] { impl_->stalled[Index(way)] = false; });
}
void FaultProxy::StallFor(Way way, std::chrono::microseconds time) {
  impl_->Do([&] {
    impl_->stalled[Index(way)] = true;
    impl_->stalled_until[Index(way)] = Clock::now() + time;
  });
}
void FaultProxy::HoldNextConnection() {
  impl_->Do([&] { impl_->hold_next = true; });
}
void FaultProxy::SetRefuse(bool refuse) {
  impl_->Do([&] { impl_->Refuse(refuse); });
}
FaultProxy::Counters FaultProxy::counters() const { return impl_->counters(); }

}  // namespace outboard::test
