// State that outlives the program: tensors that are kept under names in a session, where the next
// program that enters the session finds them. No bytes move.
//
//   SessionOptions options = ...;  options.name = "run7";      // a new session with a name
//   outboard::keep(nn::state_dict(model));
//   ... the program trains, and ends or is killed ...
//
//   options.attach = "run7";                                   // another program, another day
//   nn::load_state_dict(nn::state_dict(model), outboard::kept());
//   outboard::keep(nn::state_dict(model));
//
// A name follows its tensor: after an assign, such as an optimiser's step, it is the new value that
// the next program finds. All that one Run assigns changes together, so what is found is what the
// session had between two Runs. A tensor that counts the steps says where that was.
//
// Errors, thrown as Error: INVALID_ARGUMENT     an empty tensor, or a name that is empty, too long,
//                                               not UTF-8, or there twice
//                          FAILED_PRECONDITION  tensors of another session
//                          UNIMPLEMENTED        without a gateway
//                          of kept(): what the computation of a kept tensor failed with
#pragma once

#include "client/nn/state.h"
#include "client/tensor/tensor.h"

namespace outboard {

// These tensors, and no others, are kept from now on. Realises them; waits for no answer.
void keep(const nn::StateDict& state, At at = At::current());

// Those that were kept when this program entered its session, in the order in which they were
// named; none of a new session.
nn::StateDict kept(At at = At::current());

}  // namespace outboard
