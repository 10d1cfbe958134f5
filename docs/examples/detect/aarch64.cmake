# The compiler that edgekit brought, or another one, such as aarch64-linux-gnu-g++. The program does
# without the C++ library, which takes minutes to compile once, and which a board may lack.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER python3 -m ziglang c++ -target aarch64-linux-gnu.2.28)
set(CMAKE_CXX_FLAGS_INIT "-O3 -fno-sanitize=undefined -nostdlib++ -fno-exceptions -fno-rtti")
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE NEVER)
