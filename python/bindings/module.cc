// outboard._core: the C++ client library as a module of Python. What users import is the package
// around it (python/outboard).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "python/bindings/bindings.h"
#include "python/bindings/here.h"

NB_MODULE(_core, module) {
  using namespace outboard;            // NOLINT
  using namespace outboard::python;    // NOLINT
  nanobind::set_leak_warnings(false);  // a program may end with tensors in its globals

  module.def("set_package_folder", &SetPackageFolder);
  BindErrors(module);
  BindWaiting(module);
  BindDTypes(module);
  TensorClass tensor(module, "Tensor", nanobind::is_weak_referenceable(), nanobind::dynamic_attr(),
                     "A tensor whose values live in the cloud.\n\n"
                     "Lazy: an operation records what is to be computed and returns at once. "
                     "`realize()` sends it, and\n"
                     "only `numpy()`, `tolist()`, `item()` and `data()` wait. Shapes, types and "
                     "names are tinygrad's.\n\n"
                     "Operators and functions work element by element: shapes broadcast, operands "
                     "of different types\n"
                     "promote, and functions whose values are no whole numbers make float32 of "
                     "integers.\n"
                     "docs/operators.md has the shapes, types and errors of each. What does not "
                     "fit is\n"
                     "outboard.InvalidArgument (a ValueError) or an IndexError at the line that "
                     "asks, before\n"
                     "anything is sent; what fails in the cloud is raised where a value of it is "
                     "read.");
  BindAttention(module, tensor);
  BindCreation(module, tensor);
  BindEinsum(module, tensor);
  BindElementwise(module, tensor);
  BindFuture(module, tensor);
  BindGrids(module, tensor);
  BindIndexing(module, tensor);
  BindLinalg(module, tensor);
  BindLosses(module, tensor);
  BindMovement(module, tensor);
  BindNorms(module, tensor);
  BindOnnx(module);
  BindOperators(module, tensor);
  BindProduct(module, tensor);
  BindRandom(module, tensor);
  BindReduce(module, tensor);
  BindRepeat(module);
  BindScatter(module, tensor);
  BindSession(module);
  BindSorting(module, tensor);
  BindState(module, tensor);
  BindTraining(module, tensor);
  BindValues(module, tensor);
  BindCounters(module);
  BindJit(module);
  BindOptim(module);
  BindVariable(module);
  BindWindows(module, tensor);
}
