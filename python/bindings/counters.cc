// What the session's device is and has done, if there is a session: nothing here connects.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "client/tensor/dry_engine.h"
#include "client/tensor/engine.h"
#include "client/tensor/error.h"
#include "python/bindings/bindings.h"
#include "python/bindings/here.h"

namespace outboard::python {
namespace nb = nanobind;

void BindCounters(nb::module_& module) {
  module.def("session_counters", [] {
    nb::dict counters;
    if (const auto engine = EngineIfConnected(); engine != nullptr) {
      const transport::Stats stats = engine->stats();
      counters["runs"] = stats.runs;
      counters["kernels"] = stats.kernels_launched;
      counters["device_time_us"] = stats.device_time_us;
      counters["round_trips"] = stats.blocking_round_trips;
      counters["bytes_up"] = stats.bytes_up;
      counters["bytes_down"] = stats.bytes_down;
    }
    return counters;
  });
  module.def("device_description", [] {
    const auto engine = EngineIfConnected();
    return engine == nullptr ? std::string() : engine->stats().device;
  });
  module.def(
      "begin_dry_run", [] { SetEngine(MakeDryEngine()); },
      "From here on nothing is sent or computed: what building graphs takes can be measured.");
  module.def("synchronize", [] {
    if (const auto engine = EngineIfConnected(); engine != nullptr)
      ThrowIfError(engine->Sync(), Here());
  });
}

}  // namespace outboard::python
