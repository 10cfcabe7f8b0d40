// Sessions as Python has them: the process's own, which the environment describes, and others that
// a thread enters and leaves. outboard/session.py is what users see.
#include <nanobind/nanobind.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <mutex>
#include <tuple>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "client/report/report.h"
#include "client/session/current_session.h"
#include "client/session/estimate/recording_session.h"
#include "client/session/link/private_serve.h"
#include "client/session/waiting.h"
#include "client/tensor/session_scope.h"
#include "python/bindings/bindings.h"
#include "python/bindings/here.h"
#include "wire/limits.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

// Called from threads of gRPC, and gone with the session, wherever that ends.
std::function<void(const std::string&)> TellOf(nb::object callable) {
  const std::shared_ptr<nb::object> kept(new nb::object(std::move(callable)),
                                         [](nb::object* object) {
                                           if (Py_IsInitialized() == 0)
                                             return static_cast<void>(object->release());
                                           const nb::gil_scoped_acquire gil;
                                           delete object;
                                         });
  return [kept](const std::string& line) {
    if (Py_IsInitialized() == 0) return;
    const nb::gil_scoped_acquire gil;
    try {
      (*kept)(line);
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("tell of an outboard.Session");
    }
  };
}

uint32_t CountOf(const char* what, int64_t number, const At& at) {
  if (number < 1 || number > int64_t{wire::kSessionDevicesMax})
    ThrowIfError(
        absl::InvalidArgumentError(absl::StrCat(what, " = ", number, ": a session has 1 to ",
                                                wire::kSessionDevicesMax, " devices")),
        at);
  return static_cast<uint32_t>(number);
}

uint64_t MaxCostOf(double usd, const At& at) {
  if (!(usd > 0 && usd <= 1e12))  // also refuses what is no number
    ThrowIfError(absl::InvalidArgumentError("max_cost is US dollars, more than none"), at);
  return static_cast<uint64_t>(std::max(1LL, std::llround(usd * 1e6)));
}

uint64_t MemoryOf(const std::string& text, const At& at) {
  const std::optional<uint64_t> bytes = ParseBytes(text);
  if (!bytes.has_value())
    ThrowIfError(absl::InvalidArgumentError(absl::StrCat(
                     "memory is \"", absl::CHexEscape(text),
                     "\": write what a device is to have, such as \"512MB\" or \"8GiB\"")),
                 at);
  return *bytes;
}

class Connection {
 public:
  Connection(const std::optional<std::string>& host, const std::optional<std::string>& key,
             const std::optional<int64_t>& devices, const nb::object& tell,
             const std::optional<std::string>& fingerprint, const std::optional<std::string>& ca,
             const std::optional<double>& max_cost, const std::optional<std::vector<int64_t>>& mesh,
             const std::optional<std::string>& spread, const std::optional<std::string>& name,
             const std::optional<std::string>& attach,
             const std::optional<std::string>& device_class,
             const std::optional<std::string>& memory, bool records) {
    const At at = Here();
    absl::StatusOr<session::SessionOptions> options = session::SessionOptions::FromEnvironment();
    ThrowIfError(options.status(), at);
    if (host) {
      options->target = *host;
      absl::StatusOr<session::Protection> protection =
          fingerprint || ca
              ? session::Protection::Trusting(ca.value_or(""), fingerprint.value_or(""),
                                              {.ca = "ca", .fingerprint = "fingerprint"})
              : session::Protection::FromEnvironment();
      ThrowIfError(protection.status(), at);
      options->protection = *std::move(protection);
    }
    if (key) options->key = *key;
    // What the environment says is of the process's session, and of new ones.
    if (attach) options->devices.reset();
    if (devices) options->devices = CountOf("devices", *devices, at);
    if (mesh) {
      uint32_t product = 1;
      for (const int64_t size : *mesh) {
        options->mesh.push_back(CountOf("a mesh's axis", size, at));
        if (product <= wire::kSessionDevicesMax) product *= options->mesh.back();
      }
      if (!devices) options->devices = product;  // a mesh alone says how many there are
    }
    if (spread) options->spread = *spread;
    ThrowIfError(options->CheckDevices(), at);
    // The environment's are the process's session's; two sessions cannot have one name.
    options->name = name.value_or("");
    options->attach = attach.value_or("");
    options->fork_of.clear();
    if (name || attach) {
      if (const std::string& text = name ? *name : *attach; text.empty())
        ThrowIfError(absl::InvalidArgumentError("a session's name is empty"), at);
    }
    ThrowIfError(options->CheckNames(), at);
    if (max_cost) options->max_cost_micro_usd = MaxCostOf(*max_cost, at);
    if (!tell.is_none()) options->tell = TellOf(tell);
    if (device_class) options->device_class = *device_class;
    if (memory) options->device_memory_bytes = MemoryOf(*memory, at);
    if (records) {
      session_ = MakeRecordingSession(*options);
    } else {
      absl::StatusOr<std::unique_ptr<Session>> session = Session::Connect(*options);
      ThrowIfError(session.status(), at);
      session_ = *std::move(session);
    }
    Remember();
  }

  explicit Connection(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  session::Stats stats() const { return session_->stats(); }
  bool outlives_program() const { return session_->outlives_program(); }

  std::vector<session::ClassEstimate> Estimates(int64_t steps) const {
    absl::StatusOr<std::vector<session::ClassEstimate>> estimates =
        session::EstimatesOf(*session_, static_cast<uint64_t>(std::max<int64_t>(0, steps)));
    ThrowIfError(estimates.status(), Here());
    return *std::move(estimates);
  }

  void Detach() {
    const absl::Status status = session_->Detach();
    ForgetSession(*session_);
    ReleaseProcessSession(*session_);
    ThrowIfError(status, Here());
  }

  void Resume(const std::optional<double>& max_cost) {
    std::optional<uint64_t> most;
    if (max_cost) most = MaxCostOf(*max_cost, Here());
    ThrowIfError(session_->Resume(most), Here());
  }

  std::vector<Connection> Fork(int64_t count) {
    absl::StatusOr<std::vector<std::unique_ptr<Session>>> forks =
        session_->Fork(static_cast<int>(std::clamp<int64_t>(count, -1, INT_MAX)));
    ThrowIfError(forks.status(), Here());
    std::vector<Connection> connections;
    for (std::unique_ptr<Session>& fork : *forks) {
      connections.emplace_back(std::shared_ptr<Session>(std::move(fork)));
      connections.back().Remember();
    }
    return connections;
  }

  void Close() {
    ThrowIfError(session_->Close(), Here());
    ForgetSession(*session_);
    ReleaseProcessSession(*session_);
  }

  void PushScope() {
    Scopes().push_back({session_.get(), std::make_unique<SessionScope>(session_)});
  }

  void PopScope() {
    if (Scopes().empty() || Scopes().back().session != session_.get())
      throw std::runtime_error(
          "a session is left by the thread that entered it, the last one first");
    Scopes().pop_back();
  }

  static void CloseAll() {
    std::vector<std::weak_ptr<Session>> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(all_);
    }
    for (const std::weak_ptr<Session>& weak : all)
      if (const std::shared_ptr<Session> session = weak.lock())
        (session->outlives_program() ? session->Detach() : session->Close()).IgnoreError();
    CloseSession().IgnoreError();
  }

 private:
  void Remember() const {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [](const std::weak_ptr<Session>& session) { return session.expired(); });
    all_.push_back(session_);
  }

  struct Scope {
    const Session* session;
    std::unique_ptr<SessionScope> scope;
  };
  // Of this thread. Never destroyed: a thread may end within a scope, and then what scopes restore
  // is gone, too.
  static std::vector<Scope>& Scopes() {
    thread_local auto* const scopes = new std::vector<Scope>;
    return *scopes;
  }

  static inline std::mutex mutex_;
  static inline std::vector<std::weak_ptr<Session>> all_;  // what Connections have opened

  std::shared_ptr<Session> session_;
};

double Dollars(uint64_t micro_usd) { return static_cast<double>(micro_usd) / 1e6; }

void BindEstimate(nb::module_& module) {
  using session::ClassEstimate;
  using Three = std::tuple<double, double, double>;
  const auto three = [](const std::optional<session::EstimateRange>& range,
                        double unit) -> std::optional<Three> {
    if (!range.has_value()) return std::nullopt;
    return Three(range->expected * unit, range->low * unit, range->high * unit);
  };
  nb::class_<ClassEstimate>(module, "Estimate", "What steps take and cost on a class of devices.")
      .def_prop_ro(
          "device_class", [](const ClassEstimate& e) { return e.of.name; },
          "Empty: of a gateway without a price file.")
      .def_prop_ro(
          "seconds", [three](const ClassEstimate& e) { return three(e.seconds, 1); },
          "Expected, at least, at most; None: see `unknown`.")
      .def_prop_ro(
          "cost", [three](const ClassEstimate& e) { return three(e.micro_usd, 1e-6); },
          "Likewise, in dollars.")
      .def_ro("is_measured", &ClassEstimate::is_measured,
              "From steps that were measured, not from graphs.")
      .def_ro("unknown", &ClassEstimate::unknown, "Why there are no seconds; else empty.")
      .def("__repr__", [](const ClassEstimate& e) {
        if (!e.seconds.has_value())
          return absl::StrFormat("<Estimate %s: unknown: %s>", e.of.name, e.unknown);
        return absl::StrFormat("<Estimate %s: %.3g s (%.3g to %.3g), $%.4f>", e.of.name,
                               e.seconds->expected, e.seconds->low, e.seconds->high,
                               e.micro_usd->expected / 1e6);
      });
}

void BindStats(nb::module_& module) {
  using session::Stats;
  nb::class_<Stats>(module, "Stats", "What a session has done so far. Reading it asks nobody.")
      .def_ro("device", &Stats::device, "What it was given, as the machine tells of itself.")
      .def_ro("session_name", &Stats::session_name, "Empty: it has none.")
      .def_prop_ro(
          "session_id", [](const Stats& s) { return absl::BytesToHexString(s.session_id); },
          "As `outboard ps` prints it.")
      .def_ro("seconds", &Stats::seconds_open, "Since it was opened, by this machine's clock.")
      .def_ro("seconds_billed", &Stats::seconds_billed)
      .def_prop_ro(
          "cost", [](const Stats& s) { return Dollars(s.cost_micro_usd); },
          "Dollars, as of the last step that is done; final once the session is closed.")
      .def_prop_ro("price_per_hour",
                   [](const Stats& s) { return Dollars(s.price_per_hour_micro_usd); })
      .def_ro("steps", &Stats::steps)
      .def_ro("round_trips", &Stats::blocking_round_trips,
              "How often the program waited for an answer.")
      .def_ro("round_trip_ms", &Stats::round_trip_ms, "The smallest lately; 0 if not known.")
      .def_ro("bytes_up", &Stats::bytes_up)
      .def_ro("bytes_down", &Stats::bytes_down)
      .def_prop_ro("device_seconds",
                   [](const Stats& s) { return static_cast<double>(s.device_time_us) / 1e6; })
      .def_ro("kernels", &Stats::kernels_launched)
      .def_ro("operations", &Stats::operations, "Arithmetic on floats in kernels, estimated.")
      .def_ro("bytes_accessed", &Stats::bytes_accessed, "By kernels, each buffer of one once.")
      .def("__repr__", [](const Stats& s) {
        return absl::StrFormat(
            "<Stats device: %s, %.1f s billed, $%.4f, steps: %d, %d kernels in %.3f s, "
            "%d round trips, traffic: %d B up, %d B down>",
            s.device, s.seconds_billed, Dollars(s.cost_micro_usd), s.steps, s.kernels_launched,
            static_cast<double>(s.device_time_us) / 1e6, s.blocking_round_trips, s.bytes_up,
            s.bytes_down);
      });
}

}  // namespace

void BindSession(nb::module_& module) {
  BindStats(module);
  BindEstimate(module);
  nb::class_<Connection>(module, "Connection", "A session with a gateway; see outboard.Session.")
      .def(nb::init<const std::optional<std::string>&, const std::optional<std::string>&,
                    const std::optional<int64_t>&, const nb::object&,
                    const std::optional<std::string>&, const std::optional<std::string>&,
                    const std::optional<double>&, const std::optional<std::vector<int64_t>>&,
                    const std::optional<std::string>&, const std::optional<std::string>&,
                    const std::optional<std::string>&, const std::optional<std::string>&,
                    const std::optional<std::string>&, bool>(),
           "host"_a.none(), "key"_a.none(), "devices"_a.none(), "tell"_a.none(),
           "fingerprint"_a.none() = nb::none(), "ca"_a.none() = nb::none(),
           "max_cost"_a.none() = nb::none(), "mesh"_a.none() = nb::none(),
           "spread"_a.none() = nb::none(), "name"_a.none() = nb::none(),
           "attach"_a.none() = nb::none(), "device_class"_a.none() = nb::none(),
           "memory"_a.none() = nb::none(), "records"_a = false)
      .def_static(
          "current",
          [] {
            absl::StatusOr<std::shared_ptr<Session>> session = CurrentSession();
            ThrowIfError(session.status(), Here());
            return Connection(*std::move(session));
          },
          "The one that this thread's tensors are computed in; connects where there is none.")
      .def_static(
          "current_if_any",
          []() -> std::optional<Connection> {
            std::shared_ptr<Session> session = SessionIfConnected();
            if (session == nullptr) return std::nullopt;
            return Connection(std::move(session));
          },
          "As `current`, but never connects.")
      .def_prop_ro("stats", &Connection::stats)
      .def(
          "__repr__",
          [](const Connection& c) { return absl::StrFormat("<Connection, %s>", c.stats().device); })
      .def("close", &Connection::Close)
      .def_prop_ro("outlives_program", &Connection::outlives_program)
      .def("detach", &Connection::Detach)
      .def("resume", &Connection::Resume, "max_cost"_a.none())
      .def("fork", &Connection::Fork, "count"_a)
      .def("estimates", &Connection::Estimates, "steps"_a)
      .def("push_scope", &Connection::PushScope)
      .def("pop_scope", &Connection::PopScope);
  module.def(
      "report",
      [](int64_t step, const nb::dict& values) {
        std::vector<std::pair<std::string, double>> numbers;
        for (const auto [name, value] : values)
          numbers.emplace_back(nb::cast<std::string>(name),
                               nb::cast<double>(nb::float_(nb::borrow(value))));
        internal::ReportAlone(step, std::vector<ReportedValue>(numbers.begin(), numbers.end()),
                              Here());
      },
      "step"_a, "values"_a, "What outboard.report writes.");
  module.def(
      "warm_up_ends_at", [](int64_t step) { return WarmUpEndsAt(step, Here()); }, "step"_a,
      "Whether a sweep's warm-up ends here.");
  module.def("is_trial", &IsTrialOfSweep, "Whether `outboard sweep` reads the reports.");
  module.def("private_worker_runs", &session::PrivateServe::Running,
             "Whether this process has started a worker for its sessions.");
  module.def("close_all", &Connection::CloseAll, "Ends every session of the process.");
}

}  // namespace outboard::python
