// NumPy's files, written and read; what others wrote is in the tests of the command.
#include <fmt/format.h>
#include <postern/npy.h>

#include "file/file_test.h"
#include "formats/zip.h"

namespace postern::test {
namespace {

const DType known[] = {DType::pred, DType::s8,  DType::s16, DType::s32, DType::s64,
                       DType::u8,   DType::u16, DType::u32, DType::u64, DType::f16,
                       DType::f32,  DType::f64, DType::c64, DType::c128};

TEST(Npy, EveryDtypeComesBack) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npy";
  for (const DType dtype : known)
    for (const Dims& dims : {Dims{}, Dims{3}, Dims{2, 0}, Dims{2, 3, 1}}) {
      const Type type = make_type(dtype, dims);
      std::vector<std::byte> bytes(type.byte_size() + 1), got(type.byte_size() + 1);
      for (std::size_t i = 0; i + 1 < bytes.size(); ++i)
        bytes[i] = static_cast<std::byte>(dtype == DType::pred ? i % 2 : i + 1);
      write_npy(file, Tensor(type, bytes.data()));
      const Tensor back = read_npy(file);
      ASSERT_EQ(to_string(back.type()), to_string(type));
      back.read(got.data());
      EXPECT_EQ(bytes, got) << to_string(type);
    }
}

TEST(Npy, DtypesThatNumPyLacksAreWidened) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npy";
  const Tensor x = tensor<float>({1.5f, -2, 3});
  for (const DType narrow : {DType::bf16, DType::f8e5m2}) {
    write_npy(file, convert(x, narrow));
    EXPECT_EQ(read_npy(file).to_vector<float>(), x.to_vector<float>());
  }
  write_npy(file, convert(tensor<std::int32_t>({-3, 7}), DType::s4));
  EXPECT_EQ(read_npy(file).to_vector<std::int8_t>(), (std::vector<std::int8_t>{-3, 7}));
  const std::byte two[4]{};
  const std::int64_t dims[] = {2};
  expect_error<TypeError>([&] { npy_bytes(AnyView(DType::bf16, two, dims, 1, 2)); }, {"bf16[2]"});
}

// What does not fit into 32 bits (16 for the number of files), with smaller limits: each number
// that can be too large is, alone and with the others, and another reader takes the archives too.
TEST(Npy, ArchivesWithLargeNumbersAreZip64) {
  using namespace internal::formats;
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.zip", large(300, 'x');
  const std::vector<ZipFile> files{{"small", "ab", {}},
                                   {"large", "head ", std::as_bytes(std::span(large))},
                                   {"behind", "cd", {}}};
  for (const ZipShort fits :
       {ZipShort{}, ZipShort{.bytes = 400}, ZipShort{.bytes = 200}, ZipShort{.bytes = 0},
        ZipShort{.files = 2}, ZipShort{.bytes = 0, .files = 0}}) {
    SCOPED_TRACE(fmt::format("{} bytes, {} files", fits.bytes, fits.files));
    internal::host::NewFile out("test", file);
    write_zip(out, files, fits);
    out.finish();
    std::vector<std::pair<std::string, std::string>> back;
    read_zip(contents(file), [&](const std::string& name, std::string_view data) {
      back.emplace_back(name, data);
    });
    EXPECT_EQ(back, (std::vector<std::pair<std::string, std::string>>{
                        {"small", "ab"}, {"large", "head " + large}, {"behind", "cd"}}));
    EXPECT_EQ(std::system(("/usr/bin/python3 -m zipfile -t " + file + " >/dev/null").c_str()), 0);
  }
}

TEST(Npy, ManyArraysKeepNamesAndOrder) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npz";
  const NamedTensors arrays{
      {"w", tensor<float>({1, 2})}, {"a/b", tensor<std::int32_t>({7})}, {"\xC3\xA9", Tensor(2.5)}};
  write_npz(file, arrays);
  const NamedTensors back = read_npz(file);
  ASSERT_EQ(back.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(back[i].first, arrays[i].first);
    EXPECT_EQ(to_string(back[i].second), to_string(arrays[i].second));
  }
  write_npz(file, {});
  EXPECT_TRUE(read_npz(file).empty());
  const Tensor x(1.0f);
  expect_error<TypeError>([&] { write_npz(file, {{"x", x}, {"x", x}}); }, {"\"x\""});
  expect_error<TypeError>([&] { write_npz(file, {{"", x}}); }, {"a name has"});
  expect_error<TypeError>([&] { write_npz(file, {{"a\xff", x}}); }, {"is UTF-8"});
  EXPECT_TRUE(read_npz(file).empty());  // as it was before
}

TEST(Npy, WhatIsNoArrayIsRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npy";
  const std::string start("\x93NUMPY\x01\x00", 8);
  auto refused = [&](const std::string& header, ErrorCode code, const std::string& told) {
    std::string length{static_cast<char>(header.size()), static_cast<char>(header.size() >> 8)};
    std::string version = start;
    if (header.size() > 0xFFFF) {
      version[6] = 2;
      length += {static_cast<char>(header.size() >> 16), '\0'};
    }
    put(file, version + length + header);
    try {
      read_npy(file);
      ADD_FAILURE() << header;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_NE(std::string(e.what()).find(told), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(file), std::string::npos) << e.what();
    }
  };
  using enum ErrorCode;
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", data_loss, "12 bytes");
  refused("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2), }", unimplemented,
          "column order");
  refused("{'descr': '<U1', 'fortran_order': False, 'shape': (), }", unimplemented, "'<U1'");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", invalid_argument,
          "describes no array");
  refused(
      "{'descr': '<f8', 'fortran_order': False, "
      "'shape': (4611686018427387904, 4611686018427387904), }",
      invalid_argument, "");
  std::string axes;
  for (int i = 0; i < 150'000; ++i) axes += "1,";
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (" + axes + "), }", invalid_argument,
          "at most 64 axes, got 150000");
  refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,), }", invalid_argument,
          "describes no array");
  refused("{'descr': '<V1', 'fortran_order': False, 'shape': (3,), }", unimplemented,
          "does not say which of ml_dtypes'");
  refused("{", invalid_argument, "describes no array");
  put(file, "text");
  expect_error<Error>([&] { read_npy(file); }, {"cut short"});
  expect_error<Error>([&] { read_npy(folder.path() + "/none.npy"); }, {"none.npy"});
  jit([&](Tensor x) {
    expect_error<TypeError>([&] { write_npy(file, x); }, {"traced"});
    return x;
  })(Tensor(1.0f));
}

/// Whatever happens to a file: an error, or arrays.
TEST(Npy, ArraysOfMlDtypesAreRead) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npy";
  const auto with = [&](const std::string& descriptor, const std::string& bytes) {
    std::string header =
        "{'descr': '" + descriptor + "', 'fortran_order': False, 'shape': (3,), }\n";
    put(file, std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' +
                  header + bytes);
    return read_npy(file);
  };
  for (const char* descriptor : {"<V2", "|V2"}) {  // 1, -2, 0.5
    const Tensor x = with(descriptor, std::string("\x80\x3f\x00\xc0\x00\x3f", 6));
    EXPECT_EQ(x.dtype(), DType::bf16);
    EXPECT_EQ(convert(x, DType::f32).to_vector<float>(), (std::vector<float>{1, -2, 0.5f}));
  }
  const Tensor y = with("<f1", std::string("\x3c\xc0\x38", 3));
  EXPECT_EQ(y.dtype(), DType::f8e5m2);
  EXPECT_EQ(convert(y, DType::f32).to_vector<float>(), (std::vector<float>{1, -2, 0.5f}));
}

TEST(Npy, DamagedArchivesAreErrors) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npz";
  write_npz(file, {{"x", tensor<float>({1, 2, 3})}, {"y", Tensor(1.0)}});
  const std::string whole = contents(file);
  int refused = 0;
  auto attempt = [&](const std::string& bytes) {
    put(file, bytes);
    try {
      read_npz(file);
    } catch (const Error&) {
      ++refused;
    }
  };
  for (std::size_t n = 0; n < whole.size(); ++n) attempt(whole.substr(0, n));
  EXPECT_EQ(refused, static_cast<int>(whole.size()));
  for (std::size_t i = 0; i < whole.size(); ++i)
    for (const int bit : {0, 7}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ (1 << bit));
      attempt(bytes);
    }
  EXPECT_GT(refused, 2 * static_cast<int>(whole.size()));
  put(file, "text");
  expect_error<Error>([&] { read_npz(file); }, {"this is no ZIP archive", file});
}

TEST(Npy, ValuesAreTextAsPrintShowsThem) {
  EXPECT_EQ(to_string(tensor<float>({1.5f, -2})), "[ 1.5 -2. ]");
  EXPECT_EQ(to_string(Tensor(3)), "3");
  EXPECT_EQ(to_string(Tensor(0.125), {.precision = 2}), "0.12");
  EXPECT_EQ(to_string(iota<std::int32_t>(9), {.threshold = 4, .edge_items = 1}), "[0 ... 8]");
  expect_error<TypeError>([] { to_string(Tensor(1.0f), {.precision = -2}); }, {"precision"});
}

TEST(Npy, BooleansOfOthersAreTrueOrFalse) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npy";
  const bool two[] = {true, false};
  write_npy(file, Tensor(make_type(DType::pred, {2}), two));
  const std::string text = contents(file);
  put(file, text.substr(0, text.size() - 2) + "\x02\x01");
  EXPECT_EQ(sum(convert(read_npy(file), DType::s32)).item<std::int32_t>(), 2);
}

}  // namespace
}  // namespace postern::test
