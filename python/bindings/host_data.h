// Converts Python data to tensors, and values of tensors to Python data.
//
// Requires the GIL; functions that wait (ToHost) release it meanwhile. Types without a NumPy
// equivalent (bf16, fp8) are returned as f32.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>

#include "client/tensor/tensor.h"
#include "python/bindings/arguments.h"

namespace outboard::python {

// What Python's numbers are in a tensor of their own. Floats: DefaultFloat() of promote.h.
DType DefaultInt();
void SetDefaultInt(DType dtype);

// Of a bool, an int or a float, of which there is a default each.
DType DTypeOfNumber(const Operand& number);

// Of one number, which becomes an element as it would by cast(): -1.5 is -1 as an i32, 2 true as a
// bool. An int that an integer type does not hold is INVALID_ARGUMENT.
Tensor FullOf(const SymShape& sizes, const Arg& number, DType dtype);

// begin, begin + step ... before end, of floats: ceil((end - begin) / step) elements.
Tensor Arange(double begin, double end, double step, DType dtype);

// Of a file that is there: else raises what os.stat does.
std::string PathOf(nanobind::handle path);

// Converts the argument of Tensor(data); a path gives the file's bytes, which are read when
// something needs them. Uses `dtype` if given. Raises TypeError or ValueError for data that is not
// a rectangle of numbers, and RuntimeError for data of an unsupported kind.
Tensor TensorOf(nanobind::handle data, std::optional<DType> dtype);

// Waits.
HostTensor ToHost(const Tensor& tensor);
// Waits. Nested lists of Python's numbers; one number for a tensor of no axes.
nanobind::object ToList(const Tensor& tensor);
nanobind::object ToList(const HostTensor& host);

}  // namespace outboard::python
