// Invariants
//   A1  Bytes reach the executor in the order of Send: no write overtakes queued bytes.
//   A2  The relay drops a connection (ExecutorPort::Leave) before the connection is destroyed.
//   A3  The thread of a connection sleeps only in poll; any other work for it wakes it there.
#include "gateway/streams/local_attach.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gateway/base/clock.h"
#include "gateway/base/limits.h"
#include "gateway/base/token.h"
#include "gateway/data_path/ports.h"
#include "gateway/server/authenticator.h"
#include "gateway/streams/abstract_listener.h"
#include "proto/fleet.pb.h"
#include "telemetry/log.h"
#include "wire/frame_queue.h"
#include "wire/framing.h"
#include "wire/limits.h"

namespace outboard::gateway {

namespace {

constexpr std::chrono::seconds kHelloWithin{5};  // a worker says at once whose executor it brings

class Connection final : public ExecutorEndpoint {
 public:
  Connection(CoreDriver* driver, Authenticator* authenticator, int fd, int knock)
      : authenticator_(authenticator), fd_(fd), knock_(knock), port_(driver, this) {}
  ~Connection() override {
    close(fd_);
    close(knock_);
  }

  void Serve() {
    if (Attach()) {
      Pass();
      port_.Leave();  // A2
    }
    done_ = true;
    Break();  // the executor sees it at once, though we are reaped later
  }
  bool done() const { return done_; }
  bool attached() const { return attached_; }
  void Break() {
    shutdown(fd_, SHUT_RDWR);
    broken_ = true;
    Knock();  // the socket is not polled while the client is slow
  }

  void Send(proto::ClientFrame frame) override {
    std::lock_guard lock(mutex_);
    if (ending_) return;
    if (!waiting_.empty() || !queue_.empty()) {
      queue_.Push(std::move(frame));
      return;
    }
    waiting_ = wire::Framed(frame);
    written_ = 0;
    Write();
    if (!waiting_.empty()) Knock();
  }

  void End(absl::Status) override {
    std::lock_guard lock(mutex_);
    ending_ = true;
    Knock();
  }

  bool AskWritable() override {
    std::lock_guard lock(mutex_);
    if (Queued() <= kQueuedBytesMax) return false;
    writable_asked_ = true;
    return true;
  }

  void ResumeReading() override {
    std::lock_guard lock(mutex_);
    --pauses_;
    Knock();
  }

 private:
  bool Attach() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point until = Clock::now() + kHelloWithin;
    pollfd socket{fd_, POLLIN, 0};
    proto::LocalAttach hello;
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      if (left.count() <= 0 || poll(&socket, 1, static_cast<int>(left.count())) <= 0 ||
          !reader_.Fill(fd_).ok())
        return false;
      absl::StatusOr<bool> taken = reader_.Take(hello);
      if (!taken.ok()) return false;
      if (*taken) break;
    }
    const auto session = SessionId::FromBytes(hello.session_id());
    const auto token = TokenFromBytes(hello.attach_token());
    absl::Status status = session && token ? authenticator_->Worker(hello.fleet_secret())
                                           : absl::InvalidArgumentError("no session or token");
    if (status.ok()) status = port_.Attach(*session, *token, hello.rank());
    if (!status.ok()) {
      // The executor sees its socket close, and the session waits for it in vain.
      telemetry::LogWarning("attach_refused", {{"session", session ? session->Hex() : ""},
                                               {"message", status.message()}});
      return false;
    }
    attached_ = true;
    return true;
  }

  void Pass() {
    for (;;) {
      pollfd fds[] = {{fd_, 0, 0}, {knock_, POLLIN, 0}};
      {
        std::lock_guard lock(mutex_);
        if (ending_ && waiting_.empty() && queue_.empty()) return;
        if (pauses_ <= 0) fds[0].events |= POLLIN;
        if (!waiting_.empty()) fds[0].events |= POLLOUT;
        // One that has ended is still read to its last frame, when the client is ready for it.
        if (fds[0].events == 0) fds[0].fd = -1;
      }
      if ((poll(fds, 2, -1) < 0 && errno != EINTR) || broken_) return;
      if (fds[1].revents != 0) {
        uint64_t count;
        [[maybe_unused]] const ssize_t got = read(knock_, &count, sizeof count);
      }
      if ((fds[0].revents & POLLOUT) != 0) WriteMore();
      if ((fds[0].events & POLLIN) != 0 && fds[0].revents != 0 && !Read()) return;
    }
  }

  // False when the executor has ended, or talks nonsense.
  bool Read() {
    const bool open = reader_.Fill(fd_).ok();
    for (;;) {
      proto::ServerFrame frame;
      const absl::StatusOr<bool> taken = reader_.Take(frame);
      if (!taken.ok()) return false;
      if (!*taken) return open;
      if (port_.OnFrame(std::move(frame))) continue;
      std::lock_guard lock(mutex_);
      ++pauses_;
    }
  }

  void WriteMore() {
    bool writable = false;
    {
      std::lock_guard lock(mutex_);
      Write();
      writable = Queued() <= kQueuedBytesMax / 2 && std::exchange(writable_asked_, false);
    }
    if (writable) port_.OnWritable();
  }

  // What the socket takes now. Under mutex_.
  void Write() {
    while (!waiting_.empty()) {
      const ssize_t sent = send(fd_, waiting_.data() + written_, waiting_.size() - written_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (sent <= 0) {  // the reader sees the end
        waiting_.clear();
        queue_.Clear();
        return;
      }
      written_ += static_cast<size_t>(sent);
      if (written_ < waiting_.size()) continue;
      waiting_.clear();
      written_ = 0;
      if (!queue_.empty()) waiting_ = wire::Framed(queue_.Pop());
    }
  }

  size_t Queued() const { return waiting_.size() - written_ + queue_.bytes(); }
  void Knock() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = write(knock_, &one, sizeof one);
  }

  Authenticator* const authenticator_;
  const int fd_, knock_;
  std::atomic<bool> attached_{false}, broken_{false}, done_{false};
  ExecutorPort port_;
  wire::MessageReader reader_{wire::kMessageBytesMax};

  std::mutex mutex_;
  wire::FrameQueue<proto::ClientFrame> queue_;
  std::string waiting_;  // framed; the first `written_` bytes are gone
  size_t written_ = 0;
  int pauses_ = 0;  // asked for; below 0 where its end was told before it was counted
  bool ending_ = false, writable_asked_ = false;
};

}  // namespace

class LocalAttach::Impl {
 public:
  Impl(CoreDriver* driver, Authenticator* authenticator)
      : driver_(driver), authenticator_(authenticator) {}
  ~Impl() { Stop(); }

  absl::Status Listen() {
    auto listener = AbstractListener::Listen(absl::StrCat("outboard-", Draw<SessionId>().Hex()),
                                             [this](int fd) { Take(fd); });
    if (!listener.ok()) return listener.status();
    listener_ = *std::move(listener);
    return absl::OkStatus();
  }

  void Stop() {
    if (listener_ == nullptr) return;
    listener_.reset();
    for (Served& served : served_) served.connection->Break();
    for (Served& served : served_) served.thread.join();
    served_.clear();
  }

  const std::string& name() const { return listener_->name(); }

 private:
  struct Served {
    std::unique_ptr<Connection> connection;
    std::thread thread;
  };

  void Take(int fd) {
    served_.remove_if([](Served& served) {
      if (!served.connection->done()) return false;
      served.thread.join();
      return true;
    });
    const auto strangers = std::count_if(served_.begin(), served_.end(), [](const Served& served) {
      return !served.connection->attached();
    });
    const int knock = strangers < kLocalStrangersMax ? eventfd(0, EFD_CLOEXEC) : -1;
    if (knock < 0) {
      close(fd);
      return;
    }
    Served& served = served_.emplace_back();
    served.connection = std::make_unique<Connection>(driver_, authenticator_, fd, knock);
    try {
      served.thread = std::thread([connection = served.connection.get()] { connection->Serve(); });
    } catch (const std::system_error&) {  // too many threads: that may pass
      served_.pop_back();
    }
  }

  CoreDriver* const driver_;
  Authenticator* const authenticator_;
  std::list<Served> served_;  // the listener's, then Stop's
  std::unique_ptr<AbstractListener> listener_;
};

absl::StatusOr<std::unique_ptr<LocalAttach>> LocalAttach::Start(CoreDriver* driver,
                                                                Authenticator* authenticator) {
  auto impl = std::make_unique<Impl>(driver, authenticator);
  if (absl::Status status = impl->Listen(); !status.ok()) return status;
  return std::unique_ptr<LocalAttach>(new LocalAttach(std::move(impl)));
}

LocalAttach::LocalAttach(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalAttach::~LocalAttach() = default;
const std::string& LocalAttach::name() const { return impl_->name(); }
void LocalAttach::Stop() { impl_->Stop(); }

}  // namespace outboard::gateway
