if(NOT TARGET edgekit::kernels)
  add_library(edgekit::kernels SHARED IMPORTED)
  set_target_properties(
    edgekit::kernels
    PROPERTIES IMPORTED_LOCATION "${CMAKE_CURRENT_LIST_DIR}/libedgekit-app.so"
               INTERFACE_INCLUDE_DIRECTORIES "${CMAKE_CURRENT_LIST_DIR}")
endif()
