#include "gateway/observe/operator_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "gateway/base/clock.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/prices/price_list.h"

namespace outboard::gateway {

namespace {

const std::string kNull = "null";
constexpr char kQuestion[] = "state\n";
constexpr size_t kAnswerBytesMax = 64 << 20;
constexpr int kAcceptPauseMs = 10;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    return absl::UnavailableError(absl::StrCat("the path of the operators' socket has ",
                                               path.size(), " bytes; a socket's has fewer than ",
                                               sizeof address.sun_path));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::Status Trouble(const char* what) {
  return absl::UnavailableError(absl::StrCat("the operators' socket: ", what, ": ",
                                             strerror(errno)));
}

// Waits until there is something to read; false: not in time.
bool AwaitBytes(int fd) {
  pollfd waited{fd, POLLIN, 0};
  return poll(&waited, 1, static_cast<int>(kOperatorWithin.count())) == 1;
}

bool SendAll(int fd, const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t now = send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

void GiveUpAfter(int fd) {
  const timeval patience{kOperatorWithin.count() / 1000, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
}

// A string of JSON, in ASCII.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    else if (absl::ascii_isprint(static_cast<unsigned char>(c)))
      quoted.push_back(c);
    else
      absl::StrAppend(&quoted, "\\u00", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
  }
  return quoted + "\"";
}

// A list or an object of JSON, between these brackets.
std::string Joined(const std::vector<std::string>& parts, const char* begin, const char* end) {
  return absl::StrCat(begin, absl::StrJoin(parts, ","), end);
}

// A member of an object, whose value is JSON already.
std::string Member(const char* name, const std::string& value) {
  return absl::StrCat("\"", name, "\":", value);
}
std::string Member(const char* name, int64_t value) { return Member(name, absl::StrCat(value)); }

std::string ClassesOf(const PriceList& prices) {
  std::vector<std::string> classes;
  for (const PriceClass& of : prices.classes) {
    std::vector<std::string> hardware;
    for (const std::string& each : of.hardware) hardware.push_back(Quoted(each));
    classes.push_back(Joined({Member("name", Quoted(of.name)),
                              Member("hardware", Joined(hardware, "[", "]")),
                              Member("memory_bytes", absl::StrCat(of.memory_bytes)),
                              Member("gflops", absl::StrCat(of.rates.gflops)),
                              Member("memory_gb_per_s", absl::StrCat(of.rates.memory_gb_per_s)),
                              Member("run_micro_usd", of.run.value),
                              Member("held_micro_usd", of.idle.held.value_or(of.run).value),
                              Member("parked_micro_usd", of.idle.parked.value),
                              Member("stored_micro_usd", of.idle.stored.value)},
                             "{", "}"));
  }
  return Joined(classes, "[", "]");
}

}  // namespace

std::string OperatorSocketPath(const std::string& data_folder) {
  return data_folder + "/operator.sock";
}

std::string FleetJson(const FleetView& view, const PriceList* prices, MicroUsd price_per_hour,
                      WallTime now) {
  std::vector<std::string> devices, sessions;
  for (const DeviceView& of : view.devices)
    devices.push_back(
        Joined({Member("worker", Quoted(of.worker)), Member("device", of.device),
                Member("class", Quoted(of.slot.price_class)),
                Member("hardware", Quoted(of.slot.hardware_class)),
                Member("memory_bytes", absl::StrCat(of.slot.memory_bytes)),
                Member("gflops", absl::StrCat(of.slot.gflops)),
                Member("memory_gb_per_s", absl::StrCat(of.slot.memory_gb_per_s)),
                Member("state", Quoted(of.state)),
                Member("owner", of.owner ? absl::StrCat(of.owner->value) : kNull),
                Member("session", of.session ? Quoted(of.session->Hex()) : kNull),
                Member("per_hour_micro_usd", of.slot.price_per_hour.value)},
               "{", "}"));
  for (const SessionView& of : view.sessions) {
    const bool is_expected = of.place.has_value() && of.place->expected_s.has_value();
    sessions.push_back(Joined(
        {Member("session", Quoted(of.session.Hex())), Member("account", of.account.value),
         Member("state", Quoted(of.state)), Member("state_seconds", of.state_s),
         Member("devices", of.devices), Member("worker", Quoted(of.worker)),
         Member("class", Quoted(of.price_class)),
         Member("per_hour_micro_usd", of.per_hour.value), Member("billed_ms", of.bill.ms),
         Member("cost_micro_usd", of.bill.amount.value),
         Member("before", of.place ? absl::StrCat(of.place->before) : kNull),
         Member("expected_seconds", is_expected ? absl::StrCat(*of.place->expected_s) : kNull)},
        "{", "}"));
  }
  return Joined({Member("at", now.unix_ms / 1000),
                 Member("price_per_hour_micro_usd", price_per_hour.value),
                 Member("classes", prices == nullptr ? kNull : ClassesOf(*prices)),
                 Member("devices", Joined(devices, "[", "]")),
                 Member("sessions", Joined(sessions, "[", "]"))},
                "{", "}");
}

class OperatorSocket::Impl {
 public:
  Impl(std::string path, int listener, int stop, const CoreDriver* driver, MicroUsd price_per_hour)
      : path_(std::move(path)),
        listener_(listener),
        stop_(stop),
        driver_(driver),
        price_per_hour_(price_per_hour),
        thread_([this] { Serve(); }) {}
  ~Impl() {
    const uint64_t one = 1;
    if (write(stop_, &one, sizeof one) < 0) std::perror("outboard: eventfd");
    thread_.join();
    close(listener_);
    close(stop_);
    unlink(path_.c_str());
  }

 private:
  void Serve() {
    for (;;) {
      pollfd waited[2] = {{listener_, POLLIN, 0}, {stop_, POLLIN, 0}};
      if (poll(waited, 2, -1) < 0 && errno != EINTR) return;
      if (waited[1].revents != 0) return;
      if ((waited[0].revents & POLLIN) == 0) continue;
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      // No descriptor is free, say: poll would report the same caller again at once.
      if (fd < 0 && errno != EAGAIN) poll(&waited[1], 1, kAcceptPauseMs);
      if (fd < 0) continue;
      Answer(fd);
      close(fd);
    }
  }

  // The folder's rights and the socket's say who may; a descriptor that was passed on says nothing.
  static bool IsOurs(int fd) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
  }

  void Answer(int fd) const {
    if (!IsOurs(fd) || !AwaitBytes(fd)) return;
    char question[16] = {};
    const ssize_t bytes = recv(fd, question, sizeof question - 1, 0);
    if (bytes <= 0 || std::strcmp(question, kQuestion) != 0) return;
    GiveUpAfter(fd);
    const auto prices = driver_->prices();
    SendAll(fd, FleetJson(driver_->Look(), prices.get(), price_per_hour_, WallNow()) + "\n");
  }

  const std::string path_;
  const int listener_, stop_;
  const CoreDriver* const driver_;
  const MicroUsd price_per_hour_;
  std::thread thread_;  // last: it uses the rest
};

OperatorSocket::OperatorSocket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OperatorSocket::~OperatorSocket() = default;

absl::StatusOr<std::unique_ptr<OperatorSocket>> OperatorSocket::Start(
    const std::string& data_folder, const CoreDriver* driver, MicroUsd price_per_hour) {
  const std::string path = OperatorSocketPath(data_folder);
  OB_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return Trouble("socket");
  unlink(path.c_str());  // of a gateway that was killed: the folder is this one's alone
  // The mode before it can be connected to.
  fchmod(listener, 0600);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(path.c_str(), 0600) != 0 || listen(listener, 4) != 0) {
    const absl::Status status = Trouble("bind");
    close(listener);
    return status;
  }
  const int stop = eventfd(0, EFD_CLOEXEC);
  if (stop < 0) {
    close(listener);
    return Trouble("eventfd");
  }
  return std::unique_ptr<OperatorSocket>(new OperatorSocket(
      std::make_unique<Impl>(path, listener, stop, driver, price_per_hour)));
}

absl::StatusOr<std::string> AskGateway(const std::string& data_folder) {
  OB_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(OperatorSocketPath(data_folder)));
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Trouble("socket");
  std::string answer;
  absl::Status status;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      !SendAll(fd, kQuestion))
    status = absl::UnavailableError(
        absl::StrCat("no gateway runs in ", data_folder, "; name its folder with --data"));
  while (status.ok()) {
    char piece[1 << 14];
    if (!AwaitBytes(fd)) {
      status = absl::UnavailableError("the gateway does not answer");
      break;
    }
    const ssize_t bytes = recv(fd, piece, sizeof piece, 0);
    if (bytes <= 0) break;
    answer.append(piece, static_cast<size_t>(bytes));
    if (answer.size() > kAnswerBytesMax)
      status = absl::UnavailableError("the gateway's answer does not end");
  }
  close(fd);
  OB_RETURN_IF_ERROR(status);
  if (answer.empty() || answer.back() != '\n')
    return absl::UnavailableError("the gateway's answer is cut off");
  return answer;
}

}  // namespace outboard::gateway
