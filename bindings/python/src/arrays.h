// NumPy's arrays and those of the C interface.
#pragma once
#include <nanobind/nanobind.h>
#include <postern/c.h>

namespace postern::python {

namespace nb = nanobind;

/// Must be called before anything else here.
void import_numpy();

/// The NumPy dtype for a pn_dtype. Raises TypeError when NumPy has none and ml_dtypes is not there.
nb::object dtype_of(int code);

/// Memory as an array, which keeps `owner` alive.
nb::object array_over(const pn_array& memory, nb::handle owner, bool writable);

/// A copy of the memory, for whoever gets it to keep and to change.
nb::object copy_of(const pn_array& memory);

bool is_array(nb::handle value);
/// Or a scalar of NumPy's.
bool is_array_or_scalar(nb::handle value);

/// A value that NumPy makes an array of, row-major and of a dtype that programs take, as C sees it.
/// Raises TypeError for others.
class Described {
 public:
  explicit Described(nb::handle value);
  Described(Described&&) = default;
  const pn_array& c() const { return c_; }
  const nb::object& array() const { return array_; }

 private:
  nb::object array_;
  pn_array c_{};
};

/// Writes an array, or a Python number for rank 0, to memory of its own dtype and shape. False when
/// it does not fit; `found` is then what it is as an array.
bool write(const pn_array& to, nb::handle value, nb::object& found);

}  // namespace postern::python
