// x[...] and x[...] = value, in the forms that Python has: numbers, slices, None, Ellipsis, lists,
// arrays and tensors of integers or of bool, sizes of bound Variables, and tuples of these.
#include <nanobind/ndarray.h>

#include <deque>

#include "absl/strings/str_cat.h"
#include "client/lazy/items.h"
#include "client/lazy/lazy_graph.h"
#include "client/ops/index/index.h"
#include "client/ops/index/part_of.h"
#include "python/bindings/arguments.h"
#include "python/bindings/bindings.h"
#include "python/bindings/host_data.h"

namespace outboard::python {
namespace nb = nanobind;
using namespace nb::literals;  // NOLINT
namespace {

[[noreturn]] void RaiseIndexError(const std::string& message) {
  throw nb::index_error(message.c_str());
}

std::optional<SymInt> BoundOf(nb::handle object) {
  if (object.is_none()) return std::nullopt;
  const std::optional<SymInt> size = SizeOf(object);
  if (!size) throw nb::type_error("a slice has ints");
  return size;
}

Slice SliceOf(nb::handle object) {
  const SymInt step = BoundOf(object.attr("step")).value_or(SymInt(1));
  if (!step.is_number()) throw nb::type_error("the step of a slice is a number");
  return {BoundOf(object.attr("start")), BoundOf(object.attr("stop")), step.value()};
}

// What stands between brackets, with the tensors that lists and masks become.
class Indices {
 public:
  explicit Indices(nb::handle object) {
    // A list of numbers is one index, any other list the same as a tuple.
    const bool is_one = !IsList(object) || (PyList_Check(object.ptr()) && IsFlat(object));
    if (is_one) {
      Add(object);
    } else {
      for (const nb::handle item : object) Add(item);
    }
  }

  const std::vector<Index>& list() const { return list_; }
  // Where there is one index and it is a mask.
  const Tensor* mask() const { return count_ == 1 && mask_ ? &*mask_ : nullptr; }
  // Raises IndexError where a mask's lengths are not those of the axes of x that it stands for.
  void CheckMask(const Tensor& x) const {
    if (!mask_) return;
    const Dims dims = x.shape(), of_mask = mask_->shape();
    int64_t used = static_cast<int64_t>(of_mask.size()), before = 0;
    bool after_ellipsis = false;
    for (size_t i = 0; i < list_.size(); ++i) {
      const bool is_before = static_cast<int64_t>(i) < mask_at_;
      if (std::holds_alternative<Ellipsis>(list_[i].what())) {
        after_ellipsis = after_ellipsis || is_before;
      } else if (!std::holds_alternative<NewAxis>(list_[i].what())) {
        ++used;
        before += is_before;
      }
    }
    const auto rank = static_cast<int64_t>(dims.size());
    if (after_ellipsis) before += rank - used;
    if (used > rank || !std::equal(of_mask.begin(), of_mask.end(), dims.begin() + before))
      RaiseIndexError("the shape of a mask is not that of the axes it indexes");
  }
  // Asks the cloud how many places a mask has; waits.
  void SpellMasks() {
    if (!mask_) return;
    std::vector<Index> spelt;
    for (size_t i = 0; i <= list_.size(); ++i) {
      if (static_cast<int64_t>(i) == mask_at_) {
        const Tensor places = nonzero(*mask_);
        for (int axis = 0; axis < mask_->rank(); ++axis)
          spelt.emplace_back(Kept(places.slice(1, axis, axis + 1).squeeze(1)));
      }
      if (i < list_.size()) spelt.push_back(list_[i]);
    }
    list_ = std::move(spelt);
    mask_.reset();
  }

 private:
  static bool IsFlat(nb::handle list) {
    for (const nb::handle item : list)
      if (!PyIndex_Check(item.ptr()) || nb::isinstance<Tensor>(item)) return false;
    return true;
  }

  const Tensor& Kept(Tensor tensor) { return tensors_.emplace_back(std::move(tensor)); }

  void Add(nb::handle item) {
    ++count_;
    if (item.is_none()) {
      list_.emplace_back(kNewAxis);
    } else if (item.ptr() == Py_Ellipsis) {
      list_.emplace_back(kEllipsis);
    } else if (PySlice_Check(item.ptr())) {
      list_.emplace_back(SliceOf(item));
    } else if (nb::isinstance<Tensor>(item)) {
      AddTensor(*nb::inst_ptr<Tensor>(item));
    } else if (const std::optional<SymInt> size = SizeOf(item)) {
      list_.emplace_back(*size);
    } else if (IsList(item) || nb::ndarray_check(item)) {
      AddTensor(TensorOf(item, {}));
    } else {
      RaiseIndexError(absl::StrCat(Py_TYPE(item.ptr())->tp_name, " is no index"));
    }
  }

  void AddTensor(const Tensor& tensor) {
    const DType dtype = tensor.dtype();
    if (IsFloat(dtype))
      RaiseIndexError(
          absl::StrCat("an index is of integers or bool, not ", std::string(Name(dtype))));
    if (!IsBool(dtype)) {
      list_.emplace_back(Kept(tensor));
      return;
    }
    if (mask_) RaiseIndexError("more than one mask in an index");
    if (tensor.rank() == 0) RaiseIndexError("a mask has at least one axis");
    mask_ = tensor;
    mask_at_ = static_cast<int64_t>(list_.size());
  }

  std::deque<Tensor> tensors_;  // that list_ refers to
  std::vector<Index> list_;
  size_t count_ = 0;
  std::optional<Tensor> mask_;
  int64_t mask_at_ = -1;
};

Tensor GetItem(const Tensor& x, nb::handle index) {
  Indices indices(index);
  indices.CheckMask(x);
  indices.SpellMasks();
  return part(x, indices.list());
}

bool SameSize(const std::optional<SymInt>& a, const std::optional<SymInt>& b) {
  return a.has_value() == b.has_value() &&
         (!a || (a->value() == b->value() && a->expression() == b->expression()));
}

bool Same(const Index& a, const Index& b) {
  if (a.what().index() != b.what().index()) return false;
  if (const auto* size = std::get_if<SymInt>(&a.what()))
    return SameSize(*size, std::get<SymInt>(b.what()));
  if (const auto* slice = std::get_if<Slice>(&a.what())) {
    const auto& other = std::get<Slice>(b.what());
    return SameSize(slice->begin, other.begin) && SameSize(slice->end, other.end) &&
           slice->step == other.step;
  }
  return !std::holds_alternative<const Tensor*>(a.what());
}

// x[1:3] += 2 writes by the += what x[1:3] = ... would write once more.
bool IsWritten(const Tensor& x, const std::vector<Index>& indices, const Tensor& value) {
  const internal::PartOf* const part = value.empty() ? nullptr : value.value()->part.get();
  return part != nullptr && part->whole.value() == x.value() && part->written != nullptr &&
         part->written == x.value()->node &&
         std::equal(indices.begin(), indices.end(), part->indices.begin(), part->indices.end(),
                    Same);
}

void SetItem(Tensor& x, nb::handle index, nb::handle value) {
  const DType dtype = x.dtype();
  Indices indices(index);
  indices.CheckMask(x);
  Operand operand;
  Tensor values;
  if (!OperandFrom(value, operand)) {
    values = TensorOf(value, dtype);
    operand.arg.emplace(values);
  } else if (operand.arg->is_tensor()) {
    const Tensor& tensor = operand.arg->tensor();
    if (tensor.dtype() != dtype)
      ThrowInvalid(absl::StrCat("a value of ", std::string(Name(tensor.dtype())), " for items of ",
                                std::string(Name(dtype)), "; cast it"));
    if (IsWritten(x, indices.list(), tensor)) return;
  } else if (operand.arg->kind() == Arg::Kind::kFloat && !IsFloat(dtype)) {
    // A number of f32, which it would be beside integers, holds not all of theirs.
    values = Tensor::full({}, operand.arg->float_value(), DType::kF64).cast(dtype);
    operand.arg.emplace(values);
  }
  if (const Tensor* mask = indices.mask(); mask != nullptr) {
    if (!operand.arg->is_tensor() || operand.arg->tensor().rank() == 0) {  // no need to wait
      Dims dims = mask->shape();
      dims.resize(x.rank(), 1);
      set_items(x, {Index(kEllipsis)}, Arg(masked_fill(x, mask->reshape(dims), *operand.arg)));
      return;
    }
  }
  indices.SpellMasks();
  set_items(x, indices.list(), *operand.arg);
}

}  // namespace

void BindIndexing(nb::module_&, TensorClass& tensor) {
  tensor
      .def(
          "__getitem__", &GetItem, "indices"_a.none(),
          "Ints, slices, None, ..., lists and tensors of ints (out of range: zeros), masks of bool "
          "(these wait for the\n"
          "count of their places), sizes of bound Variables, or a tuple of these. IndexError for "
          "an "
          "int out of range.")
      .def("__setitem__", &SetItem, "indices"_a.none(), "v"_a,
           "A tensor of this dtype, or a number or list, which is cast. Of several values for one "
           "place the last stays.")
      .def("__delitem__",
           [](const Tensor&, nb::handle) { throw nb::type_error("items of a tensor stay"); })
      .def(
          "gather",
          [](const Tensor& x, int64_t dim, const Tensor& index) { return x.gather(dim, index); },
          "dim"_a, "index"_a, "y[i][j] = x[index[i][j]][j] for dim 0, and so on.")
      .def(
          "one_hot",
          [](const Tensor& x, int64_t num_classes) {
            if (num_classes == -1)
              num_classes = x.numel() == 0 ? 0 : x.max({}, false).item<int64_t>() + 1;
            return x.one_hot(num_classes, DType::kI32);
          },
          "num_classes"_a = -1, "-1 waits for the largest value, and has one class more.");
}

}  // namespace outboard::python
