"""A recipe for conan 2, of the sources that it lies in: conan create packaging/conan.

UNTESTED: written where no conan's packages can be fetched. In a release's archive XLA's headers are
beside the sources; in a clone scripts/bootstrap gets them.
"""

import os
import re

from conan import ConanFile
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load


class PosternConan(ConanFile):
    name = "postern"
    license = "Apache-2.0"
    description = "Tensor programs in C++ that reach back into the host while they run"
    settings = "os", "arch", "compiler", "build_type"
    options = {"shared": [True, False], "lapack": [True, False], "command": [True, False]}
    # LAPACKE is the system's: conan's center has none.
    default_options = {"shared": True, "lapack": False, "command": True}

    def _root(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._root(), "CMakeLists.txt"))
        self.version = re.search(r"project\(postern VERSION ([0-9.]+)", text).group(1)

    def export_sources(self):
        for part in ("CMakeLists.txt", "LICENSE", "cmake/*", "include/*", "src/*", "packages/*"):
            copy(self, part, self._root(), self.export_sources_folder)
        for part in ("command/*", "xla-headers/*"):
            copy(self, part, self._root(), self.export_sources_folder)
        headers = os.path.join(self._root(), ".deps", "include")
        copy(self, "*", headers, os.path.join(self.export_sources_folder, "xla-headers"))

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("eigen/3.4.0", transitive_headers=True)
        for package in ("fmt/10.2.1", "nlohmann_json/3.11.3", "protozero/1.7.1", "dlpack/0.8"):
            self.requires(package)
        self.requires("zlib/[>=1.2.11 <2]")
        if self.options.command:
            self.requires("cli11/2.4.1")

    def generate(self):
        CMakeDeps(self).generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["BUILD_SHARED_LIBS"] = bool(self.options.shared)
        toolchain.cache_variables["POSTERN_LAPACK"] = bool(self.options.lapack)
        toolchain.cache_variables["POSTERN_COMMAND"] = bool(self.options.command)
        for part in ("TESTS", "BENCH", "EXAMPLES", "MPI", "TORCH", "PYTHON", "ELIXIR"):
            toolchain.cache_variables[f"POSTERN_{part}"] = False
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        CMake(self).install()

    def package_info(self):
        self.cpp_info.set_property("cmake_find_mode", "none")  # it brings its own
        self.cpp_info.builddirs.append(os.path.join("lib", "cmake", "postern"))
        self.cpp_info.libs = ["postern"]
