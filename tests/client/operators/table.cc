#include "tests/client/operators/table.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace outboard::operators {
namespace {

int64_t Count(const Dims& dims) {
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

double Array::operator()(const Dims& index) const {
  OB_CHECK(index.size() == dims.size());
  int64_t place = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    OB_CHECK(index[i] >= 0 && index[i] < dims[i]);
    place = place * dims[i] + index[i];
  }
  return values[place];
}

Row OfEveryType(const std::string& name, const std::string& form, const std::string& shapes,
                Yields yields, std::vector<Operand> operands,
                std::function<Tensor(const Tensors&)> make,
                std::function<Array(const Arrays&)> wanted, double units) {
  return {name,
          form,
          shapes,
          Types::kAll,
          yields,
          Gradient::kYes,
          std::move(operands),
          std::move(make),
          std::move(wanted),
          units};
}

Row Moved(const std::string& name, const std::string& form, const std::string& shapes,
          std::vector<Operand> operands, std::function<Tensor(const Tensors&)> make,
          std::function<Array(const Arrays&)> wanted) {
  return OfEveryType(name, form, shapes, Yields::kSame, std::move(operands), std::move(make),
                     std::move(wanted), /*units=*/0);
}

Array Build(const Dims& dims, const std::function<double(const Dims&)>& f) {
  Array y = {dims, {}};
  const int64_t count = Count(dims);
  Dims index(dims.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t axis = dims.size(); axis-- > 0; rest /= dims[axis]) index[axis] = rest % dims[axis];
    y.values.push_back(f(index));
  }
  return y;
}

Array Stretch(const Array& x, const Dims& dims) {
  return Build(dims, [&](const Dims& i) {
    Dims from(i.end() - static_cast<int64_t>(x.dims.size()), i.end());
    for (size_t axis = 0; axis < from.size(); ++axis)
      if (x.dims[axis] == 1) from[axis] = 0;
    return x(from);
  });
}

Dims Common(const Dims& a, const Dims& b) {
  Dims dims(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    dims[dims.size() - 1 - i] = x == 1 ? y : x;
  }
  return dims;
}

Array Fold(const Array& x, const Dims& axes, bool keep,
           const std::function<double(const std::vector<double>&)>& f) {
  Dims kept = x.dims, left;
  std::vector<bool> gone(x.dims.size(), false);
  for (const int64_t axis : axes) {
    kept[axis] = 1;
    gone[axis] = true;
  }
  for (size_t i = 0; i < gone.size(); ++i)
    if (!gone[i]) left.push_back(x.dims[i]);
  Array y = Build(kept, [&](const Dims& at) {
    std::vector<double> elements;
    Build(x.dims, [&](const Dims& i) {
      bool here = true;
      for (size_t axis = 0; axis < i.size(); ++axis)
        here = here && (gone[axis] || i[axis] == at[axis]);
      if (here) elements.push_back(x(i));
      return 0;
    });
    return f(elements);
  });
  if (!keep) y.dims = left;
  return y;
}

Array Reshaped(Array x, const Dims& dims) {
  OB_CHECK(Count(dims) == static_cast<int64_t>(x.values.size()));
  x.dims = dims;
  return x;
}

bool Has(Types types, DType dtype) {
  switch (types) {
    case Types::kAll: return true;
    case Types::kNumbers: return !IsBool(dtype);
    case Types::kFloats: return IsFloat(dtype);
    case Types::kIntegers: return IsInt(dtype);
    case Types::kIntegersAndBool: return !IsFloat(dtype);
    default: return IsBool(dtype);
  }
}

DType ResultType(Yields yields, DType dtype) {
  switch (yields) {
    case Yields::kSame: return dtype;
    case Yields::kFloat: return IsFloat(dtype) ? dtype : DType::kF32;
    case Yields::kBool: return DType::kBool;
    case Yields::kSum:
      if (IsFloat(dtype) || ByteWidth(dtype) >= 4) return dtype;
      return IsUnsigned(dtype) ? DType::kU32 : DType::kI32;
    case Yields::kI32: return DType::kI32;
    case Yields::kU32: return DType::kU32;
    default: return DType::kF32;
  }
}

std::vector<Group> AllGroups() {
  return {Making(),   Movement(),   Indexing(), Order(),   Elementwise(), Functions(),
          Binary(),   Reductions(), Products(), Windows(), Resizing(),    Networks(),
          Formulas(), Training(),   Losses(),   Layers(),  Optimisers()};
}

}  // namespace outboard::operators
