// The tensors of a model by name.
//
// A layer or model has a method `void Collect(StateDict&, const std::string& prefix) const` that
// appends its tensors and calls those of its parts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/tensor/tensor.h"

namespace outboard::nn {

// In the order of Collect. The tensors share the model's state: assigning one changes the model.
using StateDict = std::vector<std::pair<std::string, Tensor>>;

// Appends `tensor` as `prefix.name` unless it is empty.
void Add(StateDict& state, const std::string& prefix, const std::string& name,
         const Tensor& tensor);
std::string Join(const std::string& prefix, const std::string& name);

template <typename Model>
StateDict state_dict(const Model& model) {
  StateDict state;
  model.Collect(state, "");
  return state;
}

// Returns the tensors with requires_grad.
std::vector<Tensor> parameters(const StateDict& state);
template <typename Model>
std::vector<Tensor> parameters(const Model& model) {
  return parameters(state_dict(model));
}

// Assigns `values` to the tensors of the same names in `state`; lazy. Throws Error with
// INVALID_ARGUMENT, before anything is assigned, if a name is missing on either side or duplicated,
// or a shape differs; the message lists the names.
void load_state_dict(const StateDict& state, const StateDict& values, At at = At::current());

}  // namespace outboard::nn
