// The parts of the Python module that the files of this folder define, in class Tensor and in the
// module itself.
//
// Signatures (names, order, defaults) are tinygrad's; each binding makes one call of the C++
// library. Docstrings give shapes and errors where the C++ header does.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <utility>

#include "client/lazy/call_site.h"
#include "client/tensor/tensor.h"
#include "python/bindings/here.h"

namespace outboard::python {

// The class Tensor of the module. While one of its functions runs, the line of the Python program
// is the open one (client/lazy/call_site.h), so that no function passes it on.
class TensorClass : public nanobind::class_<Tensor> {
  using Base = nanobind::class_<Tensor>;
  struct LineOfProgram {
    const CallSite site{Here()};
  };

 public:
  using OpensLine = nanobind::call_guard<LineOfProgram>;
  using Base::Base;

  template <typename F, typename... Extra>
  TensorClass& def(const char* name, F&& f, const Extra&... extra) {
    Base::def(name, std::forward<F>(f), extra..., OpensLine());
    return *this;
  }
  template <typename F, typename... Extra>
  TensorClass& def_static(const char* name, F&& f, const Extra&... extra) {
    Base::def_static(name, std::forward<F>(f), extra..., OpensLine());
    return *this;
  }
  template <typename Getter, typename... Extra>
  TensorClass& def_prop_ro(const char* name, Getter&& getter, const Extra&... extra) {
    Base::def_prop_ro(name, std::forward<Getter>(getter), extra..., OpensLine());
    return *this;
  }
  template <typename Getter, typename Setter, typename... Extra>
  TensorClass& def_prop_rw(const char* name, Getter&& getter, Setter&& setter,
                           const Extra&... extra) {
    Base::def_prop_rw(name, std::forward<Getter>(getter), std::forward<Setter>(setter), extra...,
                      OpensLine());
    return *this;
  }
};

void BindErrors(nanobind::module_& module);  // before all others
void BindWaiting(nanobind::module_& module);
void BindDTypes(nanobind::module_& module);
void BindCounters(nanobind::module_& module);
void BindJit(nanobind::module_& module);
void BindOnnx(nanobind::module_& module);
void BindOptim(nanobind::module_& module);
void BindRepeat(nanobind::module_& module);
void BindVariable(nanobind::module_& module);

void BindAttention(nanobind::module_& module, TensorClass& tensor);
void BindCreation(nanobind::module_& module, TensorClass& tensor);
void BindEinsum(nanobind::module_& module, TensorClass& tensor);
void BindElementwise(nanobind::module_& module, TensorClass& tensor);
void BindFuture(nanobind::module_& module, TensorClass& tensor);
void BindGrids(nanobind::module_& module, TensorClass& tensor);
void BindIndexing(nanobind::module_& module, TensorClass& tensor);
void BindLinalg(nanobind::module_& module, TensorClass& tensor);
void BindLosses(nanobind::module_& module, TensorClass& tensor);
void BindMovement(nanobind::module_& module, TensorClass& tensor);
void BindNorms(nanobind::module_& module, TensorClass& tensor);
void BindOperators(nanobind::module_& module, TensorClass& tensor);
void BindProduct(nanobind::module_& module, TensorClass& tensor);
void BindRandom(nanobind::module_& module, TensorClass& tensor);
void BindReduce(nanobind::module_& module, TensorClass& tensor);
void BindScatter(nanobind::module_& module, TensorClass& tensor);
void BindSession(nanobind::module_& module);
void BindSorting(nanobind::module_& module, TensorClass& tensor);
void BindState(nanobind::module_& module, TensorClass& tensor);
void BindTraining(nanobind::module_& module, TensorClass& tensor);
void BindValues(nanobind::module_& module, TensorClass& tensor);
void BindWindows(nanobind::module_& module, TensorClass& tensor);

// What an optimiser asks (is_param) and what the C++ library does, in one. None: a parameter, as
// every tensor is at first. INVALID_ARGUMENT: true of a tensor that is no float.
void SetRequiresGrad(Tensor& x, std::optional<bool> on);

// Raises what a signal's handler raised while this thread waited; false if nothing did.
bool RaiseInterruption();

}  // namespace outboard::python
