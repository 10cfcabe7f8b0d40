// What the session's device is and has done, if there is a session: nothing here connects.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "client/session/current_session.h"
#include "client/session/dry_session.h"
#include "client/tensor/error.h"
#include "python/bindings/bindings.h"
#include "python/bindings/here.h"

namespace outboard::python {
namespace nb = nanobind;

void BindCounters(nb::module_& module) {
  module.def("session_counters", [] {
    nb::dict counters;
    if (const auto session = SessionIfConnected(); session != nullptr) {
      const session::Stats stats = session->stats();
      counters["runs"] = stats.runs;
      counters["kernels"] = stats.kernels_launched;
      counters["device_time_us"] = stats.device_time_us;
      counters["operations"] = stats.operations;
      counters["bytes_accessed"] = stats.bytes_accessed;
      counters["round_trips"] = stats.blocking_round_trips;
      counters["bytes_up"] = stats.bytes_up;
      counters["bytes_down"] = stats.bytes_down;
    }
    return counters;
  });
  module.def("device_description", [] {
    const auto session = SessionIfConnected();
    return session == nullptr ? std::string() : session->stats().device;
  });
  module.def(
      "begin_dry_run", [] { SetSession(MakeDrySession()); },
      "From here on nothing is sent or computed: what building graphs takes can be measured.");
  module.def("synchronize", [] {
    if (const auto session = SessionIfConnected(); session != nullptr)
      ThrowIfError(session->Sync(), Here());
  });
}

}  // namespace outboard::python
